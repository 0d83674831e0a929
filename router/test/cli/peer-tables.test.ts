import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { type Peer, readAlias } from '../../src/config/alias/alias.ts';
import { sglang } from '../../src/config/alias/sglang.ts';
import { slime } from '../../src/config/alias/slime.ts';
import { vllm } from '../../src/config/alias/vllm.ts';
import { namedWorkers } from '../../src/config/named-workers.ts';
import { ConfigError, loadConfig } from '../../src/config/load.ts';
import { type OptionName, kebab, options } from '../../src/config/options.ts';

const peers: readonly Peer[] = [sglang, vllm, slime];

/** Flags that the documents in use name and the releases of today don't have, or the other way round. */
const documented: Readonly<Record<string, readonly string[]>> = {
  'sglang-router-0.3.2': ['bootstrap-port-annotation'],
  'vllm-router-0.1.17': ['mode', 'prefill-workers', 'decode-workers'],
};

for (const [release, peer] of [
  ['sglang-router-0.3.2', sglang],
  ['vllm-router-0.1.17', vllm],
] as const) {
  test(`the table of ${peer.name} has every flag of ${release} and of its documentation, once`, () => {
    const listed = readFileSync(join(import.meta.dirname, 'peer-flags', `${release}.txt`), 'utf8')
      .trim()
      .split('\n');
    assert.deepEqual(peer.flags.map(({ name }) => name).toSorted(), [...listed, ...documented[release]!].toSorted());
  });
}

test('every row has its words, and sets options unless it says that it has no effect', () => {
  for (const { name, flags } of peers) {
    assert.equal(new Set(flags.map((flag) => flag.name)).size, flags.length, name);
    for (const flag of flags) {
      const where = `${name} --${flag.name}`;
      assert.equal(flag.verdict === 'not', flag.ours.length === 0, where);
      assert.equal(flag.verdict === 'same', flag.note === '', where);
      if (flag.note !== '') assert.match(flag.note, /\.$/, where);
    }
  }
});

test('no flag is without effect that turnout has an option of the same name for', () => {
  const names = new Set(Object.keys(options).map((name) => kebab(name)));
  // That one has no effect under our own name either.
  names.delete('eviction-interval-secs');
  for (const { name: peer, flags } of peers) {
    const behind = flags
      .filter(({ name, verdict, isVital }) => verdict === 'not' && isVital !== true && names.has(name))
      .map(({ name }) => name);
    assert.deepEqual(behind, [], `${peer}: make them same() or renamed()`);
  }
});

test('defaults and settings of every peer are values that the options take', () => {
  for (const peer of peers) {
    const { base } = readAlias(peer, new Map());
    const config = loadConfig({}, {}, undefined, base);
    for (const [name, value] of Object.entries(base)) assert.deepEqual(config[name as OptionName], value, name);
  }
});

/** What a command line of this peer comes to: option values that differ from those of the bare verb. */
function reading(peer: Peer, given: Readonly<Record<string, readonly string[]>>) {
  return readAlias(peer, new Map(Object.entries(given)));
}

test('texts come to values of our options', () => {
  const { values, warnings } = reading(sglang, {
    'worker-urls': ['http://a:1,http://b:2', 'http://c:3'],
    'max-concurrent-requests': ['-1'],
    'log-level': ['warn'],
    'api-key': ['secret'],
    'max-tree-size': ['67108864'],
    'control-plane-api-keys': ['key1:Service Account:admin:s:1,2'],
    'disable-retries': [],
    'ca-cert-paths': ['ca.pem'],
    backend: ['sglang'],
  });
  assert.deepEqual(values, {
    workerUrls: ['http://a:1', 'http://b:2', 'http://c:3'],
    maxConcurrentRequests: 0,
    logLevel: 'warning',
    apiKey: ['secret'],
    maxTreeSize: 1_048_576,
    adminApiKey: ['s:1,2'],
    disableRetries: true,
    caCertPath: 'ca.pem',
  });
  assert.deepEqual(warnings, []);
});

test('a rate has the burst of the peers: as many as may be in flight', () => {
  const rate = { 'rate-limit-tokens-per-second': ['5'] };
  for (const peer of [sglang, vllm]) {
    const { values } = reading(peer, { ...rate, 'max-concurrent-requests': ['80'] });
    assert.deepEqual([values.rateLimitTokensPerSecond, values.rateLimitBurst], [5, 80]);
    assert.equal(reading(peer, rate).values.rateLimitBurst, undefined);
    assert.equal(reading(peer, { ...rate, 'max-concurrent-requests': ['-1'] }).values.rateLimitBurst, undefined);
  }
});

test('vllm-router --api-key says that the router itself is open', () => {
  const { values, warnings } = reading(vllm, { 'api-key': ['secret'] });
  assert.equal(values.workerApiKey, 'secret');
  assert.deepEqual(values.apiKey, undefined);
  assert.equal(warnings.length, 1);
  assert.match(warnings[0]!, /^--api-key is the key for the engines only: the router itself is open/);
  assert.doesNotMatch(warnings[0]!, /secret/);
  assert.deepEqual(reading(sglang, { 'api-key': ['secret'] }).warnings, []);
});

test('a level of the log in capitals, as frameworks hand it over in Python', () => {
  for (const [text, level] of [
    ['WARN', 'warning'],
    ['Warning', 'warning'],
    ['INFO', 'info'],
    ['DEBUG', 'debug'],
  ] as const) {
    for (const peer of [sglang, vllm])
      assert.deepEqual(reading(peer, { 'log-level': [text] }).values, { logLevel: level });
  }
});

test('a key of vllm-router goes to its engines only', () => {
  assert.deepEqual(reading(vllm, { 'api-key': ['secret'] }).values, { workerApiKey: 'secret' });
});

test('KV events of vllm-router, by worker and by rank, with their replays', () => {
  const { values } = reading(vllm, {
    'kv-event-source': ['http://a:1=tcp://a:5557', 'http://b:1=tcp://b:5557,tcp://b:5558'],
    'kv-event-replay-source': ['http://b:1=tcp://b:6557,tcp://b:6558'],
  });
  assert.deepEqual(values.kvEventEndpoints, [
    'http://a:1=tcp://a:5557',
    'http://b:1@0=tcp://b:5557',
    'replay=tcp://b:6557',
    'http://b:1@1=tcp://b:5558',
    'replay=tcp://b:6558',
  ]);
});

test('a replay of a worker that has no events is no silence', () => {
  const events = { 'kv-event-source': ['http://a:1=tcp://a:5557'], 'pd-kv-events': ['http://p:1=tcp://p:5557'] };
  const replays = (worker: string) => ({ ...events, 'kv-event-replay-source': [`${worker}=tcp://b:6557`] });
  assert.throws(() => reading(vllm, replays('http://b:1')), /--kv-event-replay-source: http:\/\/b:1 has no/);
  const ofPair = reading(vllm, replays('http://p:1')).values;
  assert.deepEqual(ofPair.kvEventEndpoints, [
    'http://a:1=tcp://a:5557',
    'http://p:1=tcp://p:5557',
    'replay=tcp://b:6557',
  ]);
});

test('pairs of vllm-router, in the words of its help and of its documentation', () => {
  const said = reading(vllm, {
    mode: ['pd'],
    'prefill-workers': ['http://a:1,http://b:1'],
    prefill: ['http://c:1', '8998'],
    'decode-workers': ['http://d:1,http://e:1'],
    'kv-connector': ['mooncake'],
    'pd-kv-events': ['http://a:1=tcp://a:5557'],
    'kv-event-source': ['http://b:1=tcp://b:5557'],
  });
  const { vllmPdDisaggregation, prefill, decode, kvConnector, kvEventEndpoints } = said.values;
  assert.deepEqual([vllmPdDisaggregation, kvConnector], [true, 'mooncake']);
  const config = loadConfig({ ...said.values }, {}, undefined, said.base);
  assert.deepEqual(
    namedWorkers(config).map(({ url, role, bootstrapPort }) => [role, url, bootstrapPort]),
    [
      ['prefill', 'http://c:1', 8998],
      ['prefill', 'http://a:1', null],
      ['prefill', 'http://b:1', null],
      ['decode', 'http://d:1', null],
      ['decode', 'http://e:1', null],
    ],
  );
  assert.ok(prefill !== undefined && decode !== undefined);
  assert.deepEqual(kvEventEndpoints, ['http://b:1=tcp://b:5557', 'http://a:1=tcp://a:5557']);
  assert.throws(
    () => loadConfig(reading(vllm, { 'kv-connector': ['moriio'] }).values, {}, undefined),
    /--kv-connector/,
  );
});

test('slime: more than its connections wait, as there', () => {
  const { values } = reading(slime, { 'slime-router-max-connections': ['512'], verbose: [] });
  assert.deepEqual(values, {
    maxConcurrentRequests: 512,
    queueSize: 1_000_000,
    queueTimeoutSecs: 604_800,
    logLevel: 'debug',
  });
});

test('slime: without that flag as many as the engines of its GPUs serve at once', () => {
  const connections = (given: Readonly<Record<string, readonly string[]>>) => {
    const { values, base } = reading(slime, given);
    const config = loadConfig(values, {}, undefined, base);
    return [config.maxConcurrentRequests, config.queueSize];
  };
  const fleet = {
    'sglang-server-concurrency': ['100'],
    'rollout-num-gpus': ['16'],
    'rollout-num-gpus-per-engine': ['3'],
  };
  assert.deepEqual(connections(fleet), [533, 1_000_000]);
  assert.deepEqual(connections({ ...fleet, 'slime-router-max-connections': ['7'] }), [7, 1_000_000]);
  assert.deepEqual(connections({ 'rollout-num-gpus': ['4'] }), [2_048, 1_000_000]);
  const [none] = connections({});
  assert.equal(none, 0);
  assert.deepEqual(connections({ 'sglang-server-concurrency': ['100'] })[0], 0);
  const { base } = reading(slime, fleet);
  assert.equal(loadConfig({ maxConcurrentRequests: 5 }, {}, undefined, base).maxConcurrentRequests, 5);
  for (const wrong of ['0', '-1', '1.5', 'many', '']) {
    assert.throws(() => reading(slime, { ...fleet, 'rollout-num-gpus-per-engine': [wrong] }), /above 0/, wrong);
  }
});

test('slime: middleware paths and plugins are one list', () => {
  const { values } = reading(slime, {
    'slime-router-middleware-paths': ['./a.ts:{"x": 1, "y": 2}', 'b'],
    plugin: ['c,d'],
  });
  assert.deepEqual(values, { plugin: ['./a.ts:{"x": 1, "y": 2}', 'b', 'c', 'd'] });
});

test('what has no effect is named, what can not be done without is refused', () => {
  const { warnings } = reading(sglang, { 'tokenizer-path': ['x'], 'redis-url': ['y'], 'history-backend': ['redis'] });
  assert.deepEqual(
    warnings.map((line) => line.split(' ')[0]),
    ['--history-backend', '--redis-url'],
  );
  for (const [peer, given] of [
    [sglang, { 'jwt-issuer': ['x'] }],
    [vllm, { 'wasm-middleware': ['x'] }],
    [vllm, { mode: ['both'] }],
  ] as const) {
    assert.throws(() => reading(peer, given), ConfigError);
  }
  assert.deepEqual(reading(vllm, { mode: ['regular'] }).warnings, []);
});

test('keys are not said back', () => {
  for (const text of ['a:b:user:secret', 'secret', 'a:secret']) {
    assert.throws(
      () => reading(sglang, { 'control-plane-api-keys': [text] }),
      (error: Error) => error instanceof ConfigError && !error.message.includes('secret'),
    );
  }
  assert.throws(() => reading(sglang, { 'ca-cert-paths': ['a', 'b'] }), /one file/);
});

test("sglang-router's traces go to the HTTP port of the collector, and only with --enable-trace", () => {
  const endpointOf = (given: Record<string, readonly string[]>) =>
    loadConfig(readAlias(sglang, new Map(Object.entries(given))).values, {}, undefined).otlpTracesEndpoint;
  assert.equal(endpointOf({ 'enable-trace': [] }), 'http://localhost:4318');
  assert.equal(endpointOf({ 'enable-trace': [], 'otlp-traces-endpoint': ['c:4317'] }), 'http://c:4318');
  assert.equal(endpointOf({ 'enable-trace': [], 'otlp-traces-endpoint': ['https://c/x'] }), 'https://c/x');
  assert.equal(endpointOf({ 'otlp-traces-endpoint': ['c:4317'] }), undefined);
});
