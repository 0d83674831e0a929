import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { exchangeOf, fleetOfSize, policyContext } from '../../../test/harness/policy.ts';
import { promptOf } from '../../../test/harness/prompt.ts';
import type { Config } from '../../config/options.ts';
import type { Prompt } from '../../exchange.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import { seededRandom } from '../../kit/rng.ts';
import type { Policy } from '../policy.ts';
import { PrefixIndex } from '../prefix-index/prefix-index.ts';
import { cacheAware } from './cache-aware.ts';

interface SetUp {
  readonly fleet: Fleet;
  readonly workers: readonly Worker[];
  readonly policy: Policy;
  /** Chooses for the prompt; the exchange is over at once. */
  readonly place: (prompt?: Prompt, tried?: readonly Worker[]) => Worker;
}

function setUp(count: number, options: Partial<Config> = {}): SetUp {
  const { fleet, workers } = fleetOfSize(count);
  const policy = cacheAware(policyContext(fleet, options));
  const place: SetUp['place'] = (prompt, tried = []) => {
    const x = exchangeOf(prompt === undefined ? {} : { prompt });
    const open = fleet.eligible.filter((worker) => !tried.includes(worker));
    return (policy.choose(x, open) as Placement).legs[0]!.worker;
  };
  return { fleet, workers, policy, place };
}

const words = (seed: number, bytes: number): string => {
  const random = seededRandom(seed);
  return Array.from({ length: bytes }, () => String.fromCharCode(97 + Math.floor(random() * 26))).join('');
};

const blocksOf = (policy: Policy, { workers }: Fleet): number[] =>
  policy.explain!(exchangeOf(), workers).map(({ terms }) => terms['blocks']!);

test('the ties of a conversation stay at one worker, conversations spread', () => {
  const { place } = setUp(4);
  const homes = Array.from({ length: 8 }, (_, i) => place(promptOf(words(i, 400))));
  assert.deepEqual(new Set(homes).size, 4);
  for (let turn = 1; turn < 10; turn++) {
    for (const [i, home] of homes.entries()) assert.equal(place(promptOf(words(i, 400 * (turn + 1)))), home);
  }
});

test('chats of many users with nothing in common spread, one after the other', () => {
  const { place, workers } = setUp(4);
  const counts = workers.map(() => 0);
  for (let i = 0; i < 60; i++) {
    const messages = [{ role: 'user', content: `${words(i, 80)}: what does that mean?` }];
    counts[place(promptOf(messages, 'messages')).slot]!++;
  }
  assert.ok(Math.min(...counts) >= 12, counts.join(' '));
});

test('of prompts beyond 2 MB the beginning decides, and as much of it as of shorter ones', () => {
  const long = words(1, 2_500_000);
  const prompt = promptOf(long);
  assert.equal(prompt.blocks.length, 4_096);
  assert.equal(promptOf(long.slice(0, 2_000_000)).blocks.length, 3_962);
  const { place } = setUp(4, { cacheThreshold: 0.5 });
  const home = place(prompt);
  // Half of what is looked at would not do for all of it.
  assert.equal(place(promptOf(long.slice(0, 1_200_000) + words(2, 2_500_000))), home);
  assert.notEqual(place(promptOf(long.slice(0, 1_000_000) + words(3, 2_500_000))), home);
  assert.notEqual(promptOf(`${long}x`).hash, prompt.hash);
});

test('prompts shorter than a block find their worker again, and no other prompt does', () => {
  const { place } = setUp(8);
  const homes = Array.from({ length: 40 }, (_, i) => place(promptOf(`short ${i}`)));
  assert.equal(new Set(homes).size, 8);
  for (const [i, home] of homes.entries()) assert.equal(place(promptOf(`short ${i}`)), home);
});

test('a shared beginning counts only when it is more than the threshold of the prompt', () => {
  const shared = words(1, 640);
  const below = setUp(4, { cacheThreshold: 0.5 });
  const first = below.place(promptOf(shared));
  assert.notEqual(below.place(promptOf(shared + words(2, 641))), first);
  const above = setUp(4, { cacheThreshold: 0.5 });
  const home = above.place(promptOf(shared));
  assert.equal(above.place(promptOf(shared + words(2, 639))), home);
});

test('of those who have seen as much of it the least loaded is taken, then each in turn', () => {
  const { fleet, place, workers } = setUp(4);
  const prompt = promptOf(words(1, 1_000));
  const first = place(prompt);
  const second = place(prompt, [first]);
  assert.notEqual(second, first);
  fleet.begin(first);
  for (let i = 0; i < 5; i++) assert.equal(place(prompt), second);
  fleet.finish(first);
  assert.deepEqual(new Set([place(prompt), place(prompt)]), new Set([first, second]));
  assert.equal(workers.length, 4);
});

test('the one who has seen more of it wins over the one who has less to do', () => {
  const { fleet, place } = setUp(3);
  const long = words(1, 4_000);
  const home = place(promptOf(long));
  place(promptOf(long.slice(0, 3_000)), [home]);
  for (let i = 0; i < 10; i++) fleet.begin(home);
  assert.equal(place(promptOf(long)), home);
});

test('a new prompt goes to the worker that has seen the least', () => {
  const { fleet, place, policy } = setUp(3);
  place(promptOf(words(1, 6_000)));
  place(promptOf(words(2, 3_000)));
  const [, , idle] = fleet.workers;
  for (let i = 0; i < 3; i++) {
    const before = blocksOf(policy, fleet);
    const worker = place(promptOf(words(10 + i, 500)));
    assert.equal(worker, idle, before.join(' '));
  }
});

test('a shared system prompt goes to the least loaded once a worker has more than 32 above another', () => {
  const { fleet, place, workers } = setUp(4);
  const system = words(1, 8_000);
  for (let i = 0; i < 400; i++) fleet.begin(place(promptOf(system + words(100 + i, 200))));
  const loads = workers.map((worker) => fleet.load(worker));
  assert.ok(Math.max(...loads) - Math.min(...loads) <= 33, loads.join(' '));
  assert.ok(Math.min(...loads) >= 60, loads.join(' '));
});

test('what was placed by load is remembered there', () => {
  const { fleet, place, workers } = setUp(2);
  const prompt = promptOf(words(1, 1_000));
  const home = place(prompt);
  const other = workers.find((worker) => worker !== home)!;
  for (let i = 0; i < 33; i++) fleet.begin(home);
  assert.equal(place(prompt), other);
  for (let i = 0; i < 5; i++) fleet.finish(home);
  for (let i = 0; i < 3; i++) assert.equal(place(prompt), other, 'as much of it, and less to do');
});

test('a worker that is removed is forgotten at once, and a new one in its slot knows nothing', () => {
  const { fleet, place, policy, workers } = setUp(2);
  const prompt = promptOf(words(1, 5_000));
  const home = place(prompt);
  fleet.remove(home);
  assert.equal(policy.describe!()['blocks'], 0);
  const newcomer = fleet.add('http://new:1') as Worker;
  assert.equal(newcomer.slot, home.slot);
  assert.equal(
    policy.explain!(exchangeOf({ prompt }), fleet.workers).find(({ worker }) => worker === newcomer.url)!.terms[
      'matchedBytes'
    ],
    0,
  );
  assert.equal(workers.length, 2);
});

test('it explains its choice', () => {
  const { fleet, place, policy } = setUp(2);
  const prompt = promptOf(words(1, 1_000));
  const home = place(prompt);
  fleet.begin(home);
  const candidates = policy.explain!(exchangeOf({ prompt }), fleet.workers);
  assert.deepEqual(candidates.find(({ worker }) => worker === home.url)!.terms, {
    matchedBytes: 960,
    load: 1,
    blocks: 15,
  });
  assert.deepEqual(candidates.find(({ worker }) => worker !== home.url)!.terms, {
    matchedBytes: 0,
    load: 0,
    blocks: 0,
  });
});

test('without a prompt the least loaded worker is taken', () => {
  const { fleet, place, workers } = setUp(3);
  for (const worker of workers.slice(0, 2)) fleet.begin(worker);
  for (let i = 0; i < 3; i++) assert.equal(place(), workers[2]);
  for (let i = 0; i < 3; i++) assert.equal(place(promptOf('')), workers[2]);
});

test('memory is bounded, of all workers together', () => {
  const { place, policy } = setUp(4, { maxTreeSize: 1_024 });
  for (let i = 0; i < 100; i++) place(promptOf(words(i, 5_000)));
  assert.ok((policy.describe!()['blocks'] as number) <= 1_024);
  const last = promptOf(words(99, 5_000));
  assert.equal(place(last), place(last));
});

test('whatever comes, loads never lie further apart than the thresholds allow', () => {
  const prompts = Array.from({ length: 6 }, (_, i) => promptOf(words(i, 300)));
  fc.assert(
    fc.property(
      fc.array(fc.nat(5), { maxLength: 200 }),
      fc.integer({ min: 1, max: 8 }),
      (steps, balanceAbsThreshold) => {
        const { fleet, place, workers } = setUp(3, { balanceAbsThreshold, balanceRelThreshold: 1 });
        for (const prompt of steps) {
          const before = workers.map((worker) => fleet.load(worker));
          const worker = place(prompts[prompt]);
          if (Math.max(...before) - Math.min(...before) > balanceAbsThreshold) {
            assert.equal(fleet.load(worker), Math.min(...before));
          }
          fleet.begin(worker);
          const after = workers.map((each) => fleet.load(each));
          assert.ok(Math.max(...after) - Math.min(...after) <= balanceAbsThreshold + 1, after.join(' '));
        }
      },
    ),
    { numRuns: 50, seed: 6 },
  );
});

test('in a large fleet the worker with most of a prompt is found as well, also without the workers that failed', () => {
  const { place, workers } = setUp(40, { cacheThreshold: 0.3 });
  const naive = new PrefixIndex(100_000);
  const random = seededRandom(5);
  const system = words(0, 640);
  for (let i = 0; i < 600; i++) {
    const group = words(1 + Math.floor(random() * 10), 300);
    const prompt = promptOf(
      `${system}${group}${words(100 + Math.floor(random() * 60), 64 + Math.floor(random() * 900))}`,
    );
    const tried = random() < 0.3 ? workers.filter(() => random() < 0.3) : [];
    const match = ({ slot }: Worker): number => naive.match(slot, prompt.blocks);
    const longest = Math.max(...workers.filter((worker) => !tried.includes(worker)).map(match));
    const chosen = place(prompt, tried);
    assert.ok(!tried.includes(chosen));
    if (64 * longest > 0.3 * prompt.bytes) assert.equal(match(chosen), longest);
    naive.insert(chosen.slot, prompt.blocks);
  }
});
