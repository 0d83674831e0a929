import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { MessageChannel } from 'node:worker_threads';
import { standStill } from '../../test/harness/stand-still.ts';
import { cameWithin } from './came-within.ts';

test('what came while the process was stopped came in time', async (t) => {
  const { port1, port2 } = new MessageChannel();
  t.after(() => port1.close());
  const message = new Promise<void>((resolve) => {
    port1.once('message', () => resolve());
  });
  await turn();
  const came = cameWithin(50, message);
  port2.postMessage(null);
  standStill(100);
  equal(await came, true);
});

test('what does not come ends the wait', async () => {
  equal(await cameWithin(5, new Promise(() => {})), false);
});
