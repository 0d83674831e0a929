import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import { startTestRouter } from '../harness/router.ts';

test('an endpoint whose option is not set is named in the log, once', async (t) => {
  const engine = await startSimEngine({ timeScale: 0 });
  t.after(() => engine.close());
  const lines: string[] = [];
  const log = pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) });
  const router = await startTestRouter(t, { workerUrls: [engine.url] }, { log });
  for (let i = 0; i < 2; i++) {
    const answer = await fetch(`${router.url}/retrieve_from_text`, { method: 'POST', body: '{}' });
    assert.equal(answer.status, 404);
    await answer.text();
  }
  const other = await fetch(`${router.url}/trajectory?session=s`);
  assert.deepEqual([other.status, lines.filter((line) => line.includes('--capture-chat')).length], [404, 1]);
  for (const path of ['/feed', '/groups', '/swap', '/api/v1/healthz']) {
    assert.equal((await fetch(router.url + path)).status, 404);
  }
  for (const needs of ['--plugin feed', '--swap-snapshots', '--tinker']) {
    assert.equal(lines.filter((line) => line.includes(`the router serves it with ${needs}`)).length, 1, needs);
  }
  const hints = lines.filter((line) => line.includes('/retrieve_from_text was answered 404 by an engine'));
  assert.equal(hints.length, 1);
  assert.match(hints[0]!, /--plugin radix-tree/);
});
