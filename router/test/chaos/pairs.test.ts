import { deepEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { seededRandom } from '../../src/kit/rng.ts';
import { startPairs } from '../pairs/scene.ts';
import { faulty, storm, stormOptions } from './pair-storm.ts';

test('engines of pairs that break, refuse and die in the middle, clients that leave: nothing is left over', async (t) => {
  const random = seededRandom(7);
  const { world, router } = await startPairs(t, [3, 3], stormOptions);
  for (const half of [...world.prefill, ...world.decode]) half.instead = faulty(random);
  await storm(t, router, random, '/generate', (text) => ({
    text,
    stream: random() < 0.5,
    return_logprob: random() < 0.2,
  }));
  // Every room was used by one pair only.
  const rooms = world.decode.flatMap(({ seen }) => seen.map((each) => each.rooms[0]));
  deepEqual(new Set(rooms).size, rooms.length);
});
