import assert from 'node:assert/strict';
import { setImmediate as nextTick } from 'node:timers/promises';
import { test } from 'node:test';
import { exchangeOf } from '../../test/harness/policy.ts';
import { promptOf } from '../../test/harness/prompt.ts';
import { scene, teach, text } from '../../test/harness/rollout-scene.ts';
import type { Exchange } from '../exchange.ts';
import { FleetModels } from '../fleet/fleet-models.ts';
import type { Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';
import { Chooser } from './choose.ts';
import { HoldQueue } from './hold-queue.ts';
import { PolicyTable } from './policy-table.ts';

test('held turns of a model whose workers have no room delay no turn of another model', async (t) => {
  const s = scene(0, { retryHeld: () => queue.retryHeld() });
  const models = new FleetModels(s.fleet, { timeoutMs: 1_000, isEnabled: false }, () => {});
  const add = (model: string): Worker => {
    const worker = s.fleet.add(`http://${model}:1`, { labels: { model_id: model } }) as Worker;
    worker.kvTokens = 20_000;
    return worker;
  };
  const [full, roomy] = [add('full'), add('roomy')];
  teach(s);
  const table = new PolicyTable({ name: 'rollout', policy: s.policy });
  const chooser = new Chooser(s.fleet, table, { models });
  const queue: HoldQueue = new HoldQueue({ setOf: (x) => chooser.setOf(x) });
  const held = new Set<Exchange>();
  t.after(() => held.forEach((x) => queue.leave(x)));
  const choose = (x: Exchange): void => {
    const choice = chooser.place(x);
    assert.ok(choice !== null && !(choice instanceof RouterError));
    if ('legs' in choice) return void held.delete(x);
    held.add(x);
    queue.hold(x, choice.hold, choice.maxMs, x.placer!, () => choose(x), assert.fail);
  };
  const six = async (model: string): Promise<Exchange[]> => {
    const turns: Exchange[] = [];
    for (let i = 0; i < 6; i++) {
      const name = `${model} ${i}`;
      const x = exchangeOf({ session: name, model, prompt: promptOf(text(name, 3_000), 'prompt') });
      turns.push(x);
      choose(x);
      await nextTick();
      s.context.clock.nowMs += 1_000;
    }
    return turns;
  };
  const all = [await six('full'), await six('roomy')];
  const [ofFull, ofRoomy] = all.map((turns) => turns.filter((x) => held.has(x)));
  assert.ok(ofFull!.length > 0 && ofRoomy!.length > 0);
  assert.ok(all[0]!.concat(all[1]!).every((x) => x.placement === null || [full, roomy].includes(x.worker!)));
  const ends = all[1]!.find((x) => !held.has(x))!;
  ends.outcome = 'complete';
  ends.status = 200;
  chooser.released(ends);
  table.sessionEnded(ends.session);
  queue.retryHeld();
  await nextTick();
  assert.equal(ofFull!.filter((x) => held.has(x)).length, ofFull!.length);
  assert.deepEqual(
    ofRoomy!.map((x) => held.has(x)),
    ofRoomy!.map((_, i) => i > 0),
    'the first of those that can be placed is placed',
  );
});
