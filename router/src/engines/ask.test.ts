import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { answer, startEngine } from '../../test/harness/engine.ts';
import { standStill } from '../../test/harness/stand-still.ts';
import { ask } from './ask.ts';

test('an answer that came while the process was stopped is not late', async (t) => {
  const control = (): string => {
    // Once the answer is written.
    queueMicrotask(() => standStill(1_100));
    return answer(200, 'well');
  };
  const engine = await startEngine(t, { control });
  const { hostname: host, port } = new URL(engine.url);
  const endpoint = { host, port: Number(port), isTls: false, tls: null, lookup: null };
  equal((await ask(endpoint, '/health', 1_000)).text, 'well');
});
