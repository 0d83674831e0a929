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

test('what is to be stored needs a plugin that captures it', () => {
  const alone = { store: 'redis://127.0.0.1:1', captureBodies: true, tokenizerPath: '/models/x' };
  assert.deepEqual(named(alone), ['--capture-bodies', '--store', '--tokenizer-path']);
  assert.deepEqual(named({ ...alone, captureChat: true }), []);
  assert.throws(() => loadConfig({ captureRequired: true }, {}, undefined), /--capture-required: nothing is captured/);
  assert.doesNotThrow(() => loadConfig({ captureRequired: true, plugin: ['radix-tree'] }, {}, undefined));
});

test('a limit on the age of weights needs a router that replaces them', () => {
  assert.deepEqual(named({ maxWeightStaleness: 2 }), ['--max-weight-staleness']);
  assert.deepEqual(named({ maxWeightStaleness: 2, swapSnapshots: '/weights/{identity}' }), []);
});

test('two listeners on one address need two ports', () => {
  const load = (options: Record<string, unknown>) => () => loadConfig(options, {}, undefined);
  assert.throws(load({ port: 9_000, adminPort: 9_000 }), /--port and --admin-port are both 9000/);
  assert.throws(
    load({ host: '0.0.0.0', port: 9_000, prometheusPort: 9_000 }),
    /--port and --prometheus-port are both 9000/,
  );
  assert.doesNotThrow(load({ host: '10.0.0.1', port: 9_000, prometheusPort: 9_000 }));
  assert.doesNotThrow(load({ port: 0, adminPort: 0, prometheusPort: 0 }));
  assert.throws(load({ pickerPort: 9_003 }), /--picker-port and --picker-health-port are both 9003/);
  assert.throws(
    load({ pickerPort: 9_002, pickerHost: '0.0.0.0', adminPort: 9_002 }),
    /--admin-port and --picker-port are both 9002/,
  );
  assert.doesNotThrow(load({ port: 9_003 }), 'nothing listens there without --picker-port');
});
