import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readLaunchServer } from './sglang-spelling.ts';

const read = (line: string) => {
  const { launch, router, engine } = readLaunchServer(line.split(' '));
  return [launch, router, engine].map((words) => words.join(' '));
};

test("--router- flags are the router's, --dp-size counts engines, the rest is the engines'", () => {
  assert.deepEqual(
    read('--model-path m --dp-size 4 --host 0.0.0.0 --port 30000 --tp 2 --router-policy cache_aware --enable-metrics'),
    [
      '--dp-size 4',
      '--host 0.0.0.0 --port 30000 --router-policy cache_aware',
      '--model-path m --tp 2 --enable-metrics',
    ],
  );
});

test('values stay with their flags: lists, negative numbers, and those behind =', () => {
  assert.deepEqual(read('--router-selector a=b c=d --dp=2 --router-max-concurrent-requests -1 --seed=-1 --x y z'), [
    '--dp-size=2',
    '--router-selector a=b c=d --router-max-concurrent-requests -1',
    '--seed=-1 --x y z',
  ]);
  assert.deepEqual(read('--data-parallel-size 2 --router-dp-worker-base-port 40000 --engine sim timeScale=0'), [
    '--dp-size 2 --engine-base-port 40000 --engine sim timeScale=0',
    '',
    '',
  ]);
});

test('a flag of one dash is an engine’s; further workers need no prefix', () => {
  assert.deepEqual(read('--router-disable-retries -tp 2 --worker-urls http://a http://b --model-path m'), [
    '',
    '--router-disable-retries --worker-urls http://a http://b',
    '-tp 2 --model-path m',
  ]);
});
