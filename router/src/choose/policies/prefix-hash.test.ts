import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { exchangeOf, fleetOfSize, policyContext } from '../../../test/harness/policy.ts';
import { promptOf } from '../../../test/harness/prompt.ts';
import type { Prompt } from '../../exchange.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { Placement, Worker } from '../../fleet/worker.ts';
import { seededRandom } from '../../kit/rng.ts';
import type { Policy } from '../policy.ts';
import { prefixHash, prefixKey } from './prefix-hash.ts';

const place = (policy: Policy, fleet: Fleet, prompt?: Prompt): Worker =>
  (policy.choose(exchangeOf(prompt === undefined ? {} : { prompt }), fleet.eligible) as Placement).legs[0]!.worker;

const words = (seed: number, bytes: number): string => {
  const random = seededRandom(seed);
  return Array.from({ length: bytes }, () => String.fromCharCode(97 + Math.floor(random() * 26))).join('');
};

test('prompts with the same first tokens have one key, whatever follows and however long it is', () => {
  fc.assert(
    fc.property(fc.nat(1_000), fc.integer({ min: 0, max: 3_000 }), fc.integer({ min: 0, max: 3_000 }), (seed, a, b) => {
      // 256 tokens of text: 1,024 bytes.
      const shared = words(seed, 1_024);
      assert.equal(prefixKey(promptOf(shared + words(1, a)), 256), prefixKey(promptOf(shared + words(2, b)), 256));
    }),
    { seed: 2 },
  );
});

test('prompts that differ in their first tokens have different keys', () => {
  const keys = new Set(
    Array.from({ length: 1_000 }, (_, i) => prefixKey(promptOf(`${words(i, 100)}${words(0, 2_000)}`), 256)),
  );
  assert.equal(keys.size, 1_000);
  const late = [1, 2].map((seed) => prefixKey(promptOf(words(0, 950) + words(seed, 1_000)), 256));
  assert.notEqual(late[0], late[1]);
});

test('a prompt shorter than a block is its own key, one shorter than the prefix has its whole blocks', () => {
  assert.notEqual(prefixKey(promptOf('short 1'), 256), prefixKey(promptOf('short 2'), 256));
  assert.equal(prefixKey(promptOf('short 1'), 256), prefixKey(promptOf('short 1'), 256));
  assert.equal(prefixKey(promptOf(words(1, 130)), 256), prefixKey(promptOf(`${words(1, 130)}...`), 256));
  assert.equal(typeof prefixKey(promptOf(''), 256), 'string');
});

test('ids count as tokens, however many digits they have', () => {
  for (const digits of [10, 10_000, 100_000]) {
    const shared = Array.from({ length: 280 }, (_, i) => digits + i);
    const [a, b] = [1, 2].map((tail) => promptOf([...shared, ...Array(500).fill(digits + tail)], 'input_ids'));
    assert.equal(prefixKey(a!, 256), prefixKey(b!, 256));
    const other = promptOf([...shared.slice(0, 200), ...Array(500).fill(digits + 1)], 'input_ids');
    assert.notEqual(prefixKey(a!, 256), prefixKey(other, 256));
  }
});

test('a prefix stays with its worker until that has more than its share', () => {
  const { fleet, workers } = fleetOfSize(4);
  const policy = prefixHash(policyContext(fleet));
  const prompt = promptOf(words(1, 2_000));
  const home = place(policy, fleet, prompt);
  for (let i = 0; i < 10; i++) assert.equal(place(policy, fleet, prompt), home);
  for (let i = 0; i < 100; i++) fleet.begin(place(policy, fleet, prompt));
  for (const worker of workers) assert.ok(fleet.load(worker) <= Math.ceil((1.25 * 100) / 4));
  assert.ok(fleet.load(home) >= 25);
});

test('the load factor can be lifted', () => {
  const { fleet } = fleetOfSize(4);
  const policy = prefixHash(policyContext(fleet, { hashLoadFactor: 0 }));
  const prompt = promptOf(words(1, 2_000));
  const home = place(policy, fleet, prompt);
  for (let i = 0; i < 50; i++) {
    fleet.begin(home);
    assert.equal(place(policy, fleet, prompt), home);
  }
});

test('prefixes spread, and without a prompt the least loaded worker is taken', () => {
  const { fleet, workers } = fleetOfSize(4);
  const policy = prefixHash(policyContext(fleet));
  assert.equal(new Set(Array.from({ length: 60 }, (_, i) => place(policy, fleet, promptOf(words(i, 500))))).size, 4);
  for (const worker of workers.slice(1)) fleet.begin(worker);
  assert.equal(place(policy, fleet), workers[0]);
});
