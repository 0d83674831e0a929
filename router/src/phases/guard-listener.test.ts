import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { MessageChannel } from 'node:worker_threads';
import { exchangeOf } from '../../test/harness/policy.ts';
import { standStill } from '../../test/harness/stand-still.ts';
import { guardListener } from './guard-listener.ts';

test('a listener that went on while the process was stopped is not late', async (t) => {
  const { port1, port2 } = new MessageChannel();
  t.after(() => port1.close());
  const whenAsked = (goOn: () => void): true => {
    port1.once('message', goOn);
    return true;
  };
  const faults: unknown[] = [];
  const guarded = guardListener(
    exchangeOf(),
    { observe: () => {}, isBehind: whenAsked, holds: (_, release) => whenAsked(release) },
    { timeoutMs: () => 50, report: (fault) => faults.push(fault) },
  );
  for (const wait of [guarded.isBehind!, (release: () => void) => guarded.holds!(true, release)]) {
    await turn();
    const released = new Promise<void>((resolve) => void wait(resolve));
    port2.postMessage(null);
    standStill(100);
    await released;
  }
  assert.deepEqual(faults, []);
});

test('a listener that does not go on is reported, and its response goes on', async (t) => {
  const faults: unknown[] = [];
  const guarded = guardListener(
    exchangeOf(),
    { observe: () => {}, isBehind: () => true, holds: () => true },
    { timeoutMs: () => 5, report: (fault) => faults.push(String(fault)) },
  );
  const alive = setInterval(() => {}, 1_000);
  t.after(() => clearInterval(alive));
  await new Promise<void>((resolve) => void guarded.isBehind!(resolve));
  await new Promise<void>((resolve) => void guarded.holds!(true, resolve));
  assert.deepEqual(faults, [
    'Error: isBehind() was true for 5 ms (--plugin-timeout-ms)',
    'Error: held an answer for 5 ms (--plugin-timeout-ms)',
  ]);
});
