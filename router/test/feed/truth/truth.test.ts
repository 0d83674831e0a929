// Whatever fails, consumers get every group that is ready, none after its ack, with the tokens that the engines sampled.
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { assertSums } from '../../harness/feed-scene.ts';
import { often } from '../../harness/often.ts';
import { until } from '../../harness/within.ts';
import { type Checked, check } from './check.ts';
import { type Fault, runGroup } from './clients.ts';
import { Consumer } from './consumer.ts';
import { GROUP, World } from './world.ts';

const trajectories = Number(process.env['TURNOUT_TRAJECTORIES'] ?? often(400, 20_000));
const seed = Number(process.env['TURNOUT_SEED'] ?? Date.now() % 1_000_000_000);
/** Groups whose sessions run at once. */
const AT_ONCE = 6;
const CONSUMERS = 3;

const faults: readonly Fault[] = ['router', 'engine', 'update', 'cut'];

type Seen = Parameters<typeof check>[0];

/** @param isExpected whether a group is to be delivered */
async function run(
  t: TestContext,
  groups: number,
  { swaps, ...options }: { readonly swaps: boolean; readonly [option: string]: unknown },
  isExpected: (world: World, group: string) => boolean,
): Promise<readonly [World, Checked, Seen]> {
  t.diagnostic(`seed ${seed}`);
  const world = new World(seed);
  await world.start({ groupSize: GROUP, needsReward: true, dropFlags: [], ...options }, swaps);
  t.after(() => world.close());
  const consumers = Array.from({ length: CONSUMERS }, (_, i) => new Consumer(world, `trainer-${i}`));
  t.after(() => consumers.forEach((consumer) => consumer.stop()));
  const consuming = consumers.map((consumer) => consumer.run());
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < groups) {
      const number = next++;
      await runGroup(world, number);
      // Also between the calls, and in the middle of deliveries: at least once.
      if (number === 3 || world.random() < 0.02) await world.killRouter();
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  for (const consumer of consumers) consumer.isCareful = true;
  await until('every group is delivered and acknowledged', async () => {
    const { open, ready, leased } = await world.stats().catch(() => ({ open: 1, ready: 0, leased: 0 }));
    return open + ready + leased === 0;
  });
  for (const consumer of consumers) consumer.stop();
  await Promise.all(consuming);
  const stats = await world.stats();
  assertSums(stats);
  assert.equal(stats.groups, groups, JSON.stringify(stats));
  const { sessions, delivered, acked, journal } = world;
  const seen = { sessions, delivered, acked, generated: journal.generated };
  const checked = check(seen, (group) => isExpected(world, group));
  const sampled = { tokens: checked.tokens, unknownVersions: checked.unknown };
  t.diagnostic(JSON.stringify({ ...stats, ...world.happened, ...sampled, delivered: delivered.length }));
  for (const fault of faults) assert.ok(world.has(fault), `${fault}: ${JSON.stringify(world.happened)}`);
  assert.ok(world.happened.crashes > 0);
  assert.deepEqual(checked.problems.slice(0, 10), [], `${checked.problems.length} problems (seed ${seed})`);
  return [world, checked, seen];
}

test('groups reach their consumers whole and once, over kills, cuts, weight updates and late rewards', async (t) => {
  const [, { groups, tokens }, seen] = await run(t, Math.ceil(trajectories / 2 / GROUP), { swaps: false }, () => true);
  assert.ok(tokens > 10 * groups.size);
  await t.test('a check of wrong data fails', () => {
    // All of what its first trajectory sampled last is known.
    const first = seen.delivered.find(({ group: { rows } }) => (rows[0]!.versions.at(-1) ?? -1) >= 0);
    const changed = (change: (group: (typeof seen.delivered)[number]['group']) => object): string[] => {
      const group = { ...first!.group, ...change(first!.group) };
      const delivered = seen.delivered.map((each) => (each === first ? { ...each, group } : each));
      return check({ ...seen, delivered }, () => true).problems;
    };
    const row = (change: object) => (group: (typeof first & object)['group']) => ({
      rows: [{ ...group.rows[0]!, ...change }, ...group.rows.slice(1)],
    });
    const { tokens: ids, rollout_log_probs: logprobs, versions, session } = first!.group.rows[0]!;
    const last = ids.length - 1;
    const finds = (problems: readonly string[], wanted: RegExp): void =>
      assert.ok(
        problems.some((problem) => wanted.test(problem)),
        `${String(wanted)}: ${problems.join()}`,
      );
    finds(changed(row({ tokens: ids.with(last, 5) })), /^tokens or logprobs/);
    finds(changed(row({ rollout_log_probs: logprobs.with(last, -9) })), /^tokens or logprobs/);
    finds(
      changed(() => ({ version_names: first!.group.version_names.map(() => 'other') })),
      /^version/,
    );
    finds(changed(row({ reward: 77 })), /^reward/);
    finds(
      changed((group) => ({ rows: group.rows.filter((each) => each.session !== session) })),
      /^no row/,
    );
    finds(
      changed(() => ({ id: 1 })),
      /^two groups|^not acknowledged/,
    );
    const others = seen.delivered.filter(({ group }) => group.group !== first!.group.group);
    finds(check({ ...seen, delivered: others }, () => true).problems, /^not delivered/);
    const again = [...seen.delivered, { ...first!, askedMs: Infinity }];
    finds(check({ ...seen, delivered: again }, () => true).problems, /^after its ack/);
    assert.deepEqual(changed(row({ versions: versions.with(last, -1) })), [], 'an unknown version is no wrong one');
  });
});

test('filters drop what they name, and nothing else, while the router swaps weights', async (t) => {
  const options = { swaps: true, dropConstantReward: true, maxTokens: 600 };
  await run(t, Math.ceil(trajectories / 2 / GROUP), options, ({ sessions }, group) => {
    const members = [...sessions.values()].filter((session) => session.group === group);
    return !members.some(({ isLong }) => isLong) && new Set(members.map(({ reward }) => reward)).size > 1;
  });
});
