import { test } from 'node:test';
import { runHardCases, usualFaults } from './hard-cases.ts';

const trajectories = Number(process.env['TURNOUT_TRAJECTORIES'] ?? 2_000);
const seed = Number(process.env['TURNOUT_SEED'] ?? 1);

test(
  `${trajectories} hard chats of chat-sessions are exported as they were sampled`,
  { timeout: 280_000 },
  async (t) => {
    t.diagnostic(`seed ${seed}`);
    const done = await runHardCases({ plugin: 'chat-sessions', trajectories, seed, faults: usualFaults });
    t.diagnostic(JSON.stringify(done));
  },
);
