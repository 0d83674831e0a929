import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig } from './load.ts';
import { withoutEffect } from './option-problems.ts';

const named = (options: Record<string, unknown>): string[] =>
  withoutEffect(loadConfig(options, {}, undefined)).map((line) => line.replace(/ has no effect.*/, ''));

const ranks = { dpAware: true, intraNodeDataParallelSize: 4, decode: ['http://b:1'], prefill: ['http://a:1'] };

test('what has no effect is named', () => {
  assert.deepEqual(named({ evictionIntervalSecs: 60 }), ['--eviction-interval-secs']);
  assert.deepEqual(named({ tinkerTrainer: 'http://t:1' }), ['--tinker-trainer']);
  assert.deepEqual(named({ tinkerWeights: '/ckpt/{checkpoint}' }), ['--tinker-weights']);
  assert.deepEqual(named({ ...ranks, pdDisaggregation: true }), ['--dp-aware', '--intra-node-data-parallel-size']);
});

test('what has an effect is not', () => {
  assert.deepEqual(named({}), []);
  assert.deepEqual(named({ tinker: true, tinkerTrainer: 'http://t:1' }), []);
  assert.deepEqual(named({ dpAware: true, intraNodeDataParallelSize: 4 }), []);
  assert.deepEqual(named({ ...ranks, vllmPdDisaggregation: true }), []);
});
