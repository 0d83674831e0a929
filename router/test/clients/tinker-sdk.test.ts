import assert from 'node:assert/strict';
import { test } from 'node:test';
import { generations, newest, whyMissing } from './environments.ts';
import { type Sequence, areSampledBy } from './sampled.ts';
import { type Said, type Scene, type Served, startScene } from './scene.ts';

/** The real tinker SDK, four generations of it, against a router with --tinker and simulated engines of both kinds. */

const kinds = ['vllm', 'sglang'] as const;

const of = (said: readonly Said[], step: string): Said[] => said.filter((line) => line.step === step);
const tail = <T>(list: readonly T[], count: number): T[] => list.slice(list.length - count);

/** Which engines served which key. */
function enginesByKey(served: readonly Served[]): Map<string | null, Set<string>> {
  const engines = new Map<string | null, Set<string>>();
  for (const { session, engine } of served) engines.set(session, (engines.get(session) ?? new Set()).add(engine));
  return engines;
}

for (const version of generations) {
  const skip = await whyMissing(version);
  for (const kind of kinds) {
    test(`tinker ${version} samples from ${kind} engines`, { skip }, async (t) => {
      const scene = await startScene(t, { kind });
      await t.test('capabilities, concurrent samples, logprobs of prompts, ends of samples', async () => {
        const said = await scene.run(version, ['capabilities', 'samples', 'scores', 'ends']);
        assert.equal(of(said, 'version')[0]!['version'], version);
        assert.deepEqual(of(said, 'capabilities')[0]!['models'], ['sim']);
        const calls = of(said, 'sample');
        assert.equal(calls.length, 8);
        const session = of(said, 'client')[0]!['session'] as string;
        const { served } = scene;
        for (const { prompt, sequences, index } of calls as unknown as {
          prompt: number[];
          sequences: Sequence[];
          index: number;
        }[]) {
          assert.equal(sequences.length, 4);
          assert.ok(new Set(sequences.map(({ tokens }) => tokens.join())).size > 1, 'samples with one seed differ');
          areSampledBy(served, prompt, sequences);
          const engines = new Set(
            served.filter(({ session: key }) => key === `${session}:${index}`).map(({ engine }) => engine),
          );
          assert.equal(engines.size, 1, 'all samples of a call are on one engine');
        }
        scored(said);
        const [whole, stopped, again] = of(said, 'end') as unknown as (Sequence & Said)[];
        assert.equal(whole!.tokens.length, 16);
        assert.equal(whole!.stop_reason, 'length');
        assert.deepEqual(again!.tokens, whole!.tokens);
        const stop = whole!.tokens[5]!;
        assert.deepEqual(stopped!.tokens, whole!.tokens.slice(0, whole!.tokens.indexOf(stop) + 1));
        assert.equal(stopped!.stop_reason, 'stop');
      });
      await t.test('client and server agree on each routing key, each key has one engine, keys spread', async () => {
        for (const first of [0, 1_000_000_000_000_000_001n]) {
          const before = { dispatched: scene.dispatched.length, served: scene.served.length };
          const args = ['trajectories', '--trajectories', '12', '--turns', '3', '--first-seq-id', String(first)];
          const said = await scene.run(version, args);
          const keys = of(said, 'dispatch').map(({ key }) => key as string);
          assert.equal(keys.length, 36);
          assert.deepEqual(scene.dispatched.slice(before.dispatched).toSorted(), keys.toSorted());
          const engines = enginesByKey(tail(scene.served, scene.served.length - before.served));
          const byKey = enginesByKey(scene.served);
          for (const key of keys) assert.equal(byKey.get(key)?.size, 1, `${key} has one engine`);
          const used = new Set(keys.flatMap((key) => [...byKey.get(key)!]));
          assert.ok(used.size > 1, 'keys spread');
          assert.ok(engines.size > 0);
        }
      });
      await t.test('without a sampling session no engine gets a routing key', async () => {
        const before = scene.dispatched.length;
        const said = await scene.run(version, ['direct']);
        assert.equal(of(said, 'direct').length, 4);
        assert.deepEqual(scene.dispatched.slice(before), ['none', 'none', 'none', 'none']);
        for (const { prompt, ...sequence } of of(said, 'direct') as unknown as (Sequence & { prompt: number[] })[]) {
          areSampledBy(scene.served, prompt, [sequence]);
          const own = scene.served.filter(({ inputIds }) => JSON.stringify(inputIds) === JSON.stringify(prompt));
          assert.deepEqual(
            own.map(({ session }) => session),
            [null],
          );
        }
      });
    });
  }
}

/** Logprobs of a prompt: those of the model, with the likeliest beside them. */
function scored(said: readonly Said[]): void {
  const logprobs = of(said, 'scores')[0]!['logprobs'] as (number | null)[];
  assert.equal(logprobs.length, 24);
  assert.equal(logprobs[0], null);
  assert.ok(logprobs.slice(1).every((value) => value! < 0));
  const { logprobs: same, rows } = of(said, 'topk')[0] as unknown as {
    logprobs: (number | null)[];
    rows: ([number, number][] | null)[];
  };
  assert.deepEqual(same, logprobs);
  assert.equal(rows[0], null);
  for (const [i, row] of rows.slice(1).entries()) {
    assert.equal(row!.length, 3);
    assert.deepEqual(
      row!.toSorted((a, b) => b[1] - a[1]),
      row,
    );
    assert.ok(row![0]![1] >= logprobs[i + 1]!);
  }
}

/** A run with an accident while samples are in flight: all of it is sampled, and the SDK raised nothing. */
async function runThrough(scene: Scene, accident: () => Promise<void>): Promise<void> {
  const [trajectories, turns] = [16, 6];
  const happening: Promise<void>[] = [];
  // In the third turn.
  scene.onDispatch = (count) => {
    if (count > 2.5 * trajectories && happening.length === 0) happening.push(accident());
  };
  const args = ['rollouts', '--trajectories', String(trajectories), '--turns', String(turns)];
  const said = await scene.run(newest, args);
  assert.equal(happening.length, 1);
  await happening[0];
  const rollouts = of(said, 'rollout') as unknown as { prompt: number[]; sequences: Sequence[] }[];
  assert.equal(rollouts.length, trajectories * turns);
  const { served } = scene;
  for (const { prompt, sequences } of rollouts) areSampledBy(served, prompt, sequences);
}

async function killBusiest({ engines }: Scene): Promise<void> {
  const stats = await Promise.all(engines.map((engine) => engine.stats()));
  const running = stats.map((each) => each.running + each.waiting);
  const most = Math.max(...running);
  assert.ok(most > 0);
  await engines[running.indexOf(most)]!.kill('SIGKILL');
}

/** Slow enough for samples to be in flight when the accident happens. */
const slow = { timeScale: 1, stepBaseMs: 40 };

for (const kind of kinds) {
  const skip = await whyMissing(newest);
  test(`a run goes on when one of its ${kind} engines is killed: the SDK raises nothing`, { skip }, async (t) => {
    const scene = await startScene(t, { kind, sim: slow, flags: ['--health-check-interval-secs', '1'] });
    await runThrough(scene, () => killBusiest(scene));
  });

  test(`a run over ${kind} engines goes on when the router is killed and started again`, { skip }, async (t) => {
    const scene = await startScene(t, { kind, sim: slow });
    await runThrough(scene, async () => {
      await scene.endRouter('SIGKILL');
      await scene.startRouter();
    });
    assert.ok(scene.log.some((line) => line.includes('samples that were open are sampled again')));
  });
}
