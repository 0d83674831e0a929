import assert from 'node:assert/strict';
import { test } from 'node:test';
import { stoppedClock } from '../../../router/test/harness/fake-time.ts';
import { resolveSimOptions } from '../sim-options.ts';
import { Driver } from './driver.ts';
import { Sampler } from './sampler.ts';
import { Scheduler } from './scheduler.ts';
import { Sequence } from './sequence.ts';

test('late timers do not add up, but what a stop of the process would have given is not made up for', async (t) => {
  const clock = stoppedClock(t);
  const options = resolveSimOptions({
    stepBaseMs: 20,
    stepPerSequenceMs: 0,
    stepPerKvTokenMs: 0,
    prefillPerTokenMs: 0,
  });
  const scheduler = new Scheduler(options, new Sampler(options.seed, 0, false));
  const sampling = { maxTokens: 1_000, minTokens: 0, temperature: 0, topK: 0, sampleSeed: 0, ignoreEos: true };
  const shown = { stopTexts: [], stopIds: [], showStop: false, showSpecial: false };
  let tokens = 0;
  let delivered = Promise.withResolvers<void>();
  const driver = new Driver(scheduler, 1, (progressed) => {
    tokens += progressed.length;
    delivered.resolve();
  });
  t.after(() => driver.stop());
  /** The tokens that come when the next timer fires so late. */
  const after = async (ms: number): Promise<number> => {
    const before = tokens;
    delivered = Promise.withResolvers();
    clock.pass(ms);
    await delivered.promise;
    return tokens - before;
  };
  scheduler.submit(new Sequence('a', [264], { ...sampling, ...shown }), performance.now());
  driver.kick();
  // Steps end at 20, 40, 60 ms and so on.
  assert.equal(await after(45), 2);
  assert.equal(await after(40), 2);
  // The step that ran, and two of the last 50 ms.
  assert.equal(await after(1_000), 3);
  assert.equal(await after(20), 1);
});
