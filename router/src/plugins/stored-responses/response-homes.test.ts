import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { memoryStore } from '../../choose/state.ts';
import { ResponseHomes } from './response-homes.ts';

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
