import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { memoryUsed } from '../../test/harness/memory-used.ts';
import { fleetOfSize } from '../../test/harness/policy.ts';
import { HoldQueue } from '../choose/hold-queue.ts';
import { SessionHomes } from '../choose/session-homes.ts';
import { memoryStore } from '../choose/state.ts';
import { LiveConfig } from '../config/live.ts';
import { loadConfig } from '../config/load.ts';
import { seededRandom } from '../kit/rng.ts';
import { startChoosing } from './policy-control.ts';

test('models whose policy was set and unset leave nothing in memory', async (t) => {
  const nowMs = (): number => 0;
  const { control, table } = await startChoosing(new LiveConfig(loadConfig({ policy: 'random' }, {}, undefined)), {
    fleet: fleetOfSize(1).fleet,
    random: seededRandom(1),
    nowMs,
    state: memoryStore().open,
    holdQueue: new HoldQueue(),
    homes: new SessionHomes(nowMs, nowMs),
    log: pino({ level: 'silent' }),
  });
  t.after(() => table.close());
  let models = 0;
  const pass = async (count: number): Promise<void> => {
    for (let i = 0; i < count; i++) {
      const model = `an-adapter-of-step-${models++}`;
      await control.set(model, 'random');
      control.unset(model);
      control.unset(`${model}-that-has-none`);
    }
  };
  await pass(5_000);
  const before = memoryUsed();
  // So many that what other tests of the process leave does not count.
  await pass(20_000);
  const bytes = (memoryUsed() - before) / 20_000;
  assert.ok(bytes < 50, `${bytes} bytes per model`);
});
