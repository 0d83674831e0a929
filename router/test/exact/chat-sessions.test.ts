import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runHardCases, usualFaults } from './hard-cases.ts';
import { often } from '../harness/often.ts';

const trajectories = Number(process.env['TURNOUT_TRAJECTORIES'] ?? often(400, 10_000));
const seed = Number(process.env['TURNOUT_SEED'] ?? 1);

test(`${trajectories} hard chats of chat-sessions are exported as they were sampled`, async (t) => {
  t.diagnostic(`seed ${seed}`);
  const done = await runHardCases({ plugin: 'chat-sessions', trajectories, seed, faults: usualFaults });
  t.diagnostic(JSON.stringify(done));
  for (const [kind, count] of Object.entries(done.met)) assert.ok(count > 0, `no ${kind}`);
});
