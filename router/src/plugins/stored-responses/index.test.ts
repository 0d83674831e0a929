import { deepEqual, equal, throws } from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf, fleetOf } from '../../../test/harness/policy.ts';
import { memoryStore } from '../../choose/state.ts';
import type { Exchange } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { BodyThread } from '../../forward/body-calls.ts';
import { Refused } from '../../plugin.ts';
import { ResponseHomes, storedResponses } from './index.ts';

/** A request for a response that is stored at the worker with this URL. */
async function needing(url: string, ...urls: readonly string[]) {
  const { fleet, workers } = fleetOf(...urls);
  const state = memoryStore().open('responses');
  state.set('resp_1', url);
  const plugin = storedResponses(fleet, {} as BodyThread, state);
  const x: Exchange = exchangeOf();
  x.path = '/v1/responses/resp_1';
  await plugin.classify!(x);
  const choose = (among: readonly Worker[] = workers): string[] => plugin.choose!(x, among).map((worker) => worker.url);
  return { fleet, workers, choose };
}

test('of the ranks of an engine the one that stored the response, else another, as the engine has it for all', async () => {
  const { workers, choose } = await needing('http://a:1@1', 'http://a:1@0', 'http://a:1@1', 'http://b:1');
  deepEqual(choose(), ['http://a:1@1']);
  deepEqual(choose([workers[0]!, workers[2]!]), ['http://a:1@0']);
  throws(() => choose([workers[2]!]), Refused);
});

test('of pairs the decode engine that stored it, with any prefill engine', async () => {
  const { fleet, choose } = await needing('http://d1:1', 'http://other:1');
  const add = (url: string, role: 'prefill' | 'decode'): Worker => fleet.add(url, { role }) as Worker;
  const pairs = [
    add('http://p1:1', 'prefill'),
    add('http://d1:1', 'decode'),
    add('http://p2:1', 'prefill'),
    add('http://d2:1', 'decode'),
  ];
  deepEqual(choose(pairs), ['http://p1:1', 'http://p2:1', 'http://d1:1']);
});

test('beyond the limits of number and characters the least recently used are forgotten, in the saved state too', () => {
  const state = memoryStore().open('responses');
  const homes = new ResponseHomes(state, { count: 3, chars: 100 });
  for (const id of ['a', 'b', 'c']) homes.set(id, `http://${id}`);
  equal(homes.get('a'), 'http://a');
  homes.set('d', 'http://d');
  equal(homes.get('b'), undefined);
  deepEqual([...state.entries()].map(([id]) => id).toSorted(), ['a', 'c', 'd']);
  homes.set('e'.repeat(99), 'http://e');
  equal(homes.size, 2);
  equal(homes.get('d'), 'http://d');
  homes.set('x'.repeat(257), 'http://x');
  equal(homes.get('x'.repeat(257)), undefined);
  equal(homes.size, 2);
  // What an earlier process with higher limits saved.
  equal(new ResponseHomes(state, { count: 1, chars: 1_000 }).size, 1);
  equal(state.size, 1);
});
