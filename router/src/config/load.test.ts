import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import * as z from 'zod';
import { type OptionSpec, innerSchema } from './options/option.ts';
import { ConfigError, fromText, loadConfig, originsOf, splitList, unknownVariables } from './load.ts';
import { type OptionName, envName, kebab, options } from './options.ts';

const folder = mkdtempSync(join(tmpdir(), 'turnout-config-'));
after(() => rmSync(folder, { recursive: true }));

function fileOf(text: string): string {
  const path = join(folder, 'turnout.yaml');
  writeFileSync(path, text);
  return path;
}

const errorOf = (load: () => unknown): string => {
  try {
    load();
  } catch (error) {
    assert.ok(error instanceof ConfigError);
    return error.message;
  }
  return assert.fail('no error');
};

const names = Object.keys(options) as OptionName[];
const defaults = loadConfig({}, {}, undefined);

/** What can't be made up: text, and its value where that is not the text. */
const samples: Partial<Record<OptionName, readonly [text: string, value?: unknown]>> = {
  policy: ['round-robin', 'round_robin'],
  modelPolicy: ['m=random, org/n=cache_aware', ['m=random', 'org/n=cache_aware']],
  sessionHeaders: ['X-Rollout x-session-id', ['x-rollout', 'x-session-id']],
  sessionFields: ['routing_key user', ['routing_key', 'user']],
  keyOrder: ['vllm-router'],
  workerApi: ['vllm'],
  tokenizerPath: ['/models/m'],
  store: ['memory'],
  assignmentMode: ['min_load'],
  hashLoadFactor: ['1.5', 1.5],
  cacheThreshold: ['0.25', 0.25],
  evictionIntervalSecs: ['60', 60],
  kvEventEndpoints: ['http://a:1=tcp://a:2', ['http://a:1=tcp://a:2']],
  kvReplayPort: ['5558', 5558],
  requestIdHeaders: ['X-Trace-Id, x-b', ['x-trace-id', 'x-b']],
  logLevel: ['warn', 'warning'],
  healthCheckEndpoint: ['/up'],
  otlpTracesEndpoint: ['http://collector:4318'],
  traceSampleRatio: ['0.25', 0.25],
  retryJitterFactor: ['0.5', 0.5],
  retryBudget: ['0.5', 0.5],
  retryStatuses: ['500, 503', [500, 503]],
  apiKey: ['one, two', ['one', 'two']],
  adminApiKey: ['one', ['one']],
  broadcastPaths: ['/mine, /rl/*', ['/mine', '/rl/*']],
  singleWorkerPaths: ['/flush_cache', ['/flush_cache']],
  adminPort: ['30001', 30_001],
  endpointTargetPorts: ['8000,8001', [8000, 8001]],
  poolGroup: ['inference.networking.k8s.io'],
  leaderElection: ['turnout'],
  poolName: ['pool'],
  poolNamespace: ['rl'],
  objectives: ['chat=10, batch=-1', ['chat=10', 'batch=-1']],
  pickerPort: ['9002', 9_002],
  selector: ['app=vllm example.com/tier=gpu', ['app=vllm', 'example.com/tier=gpu']],
  prefillSelector: ['app=p', ['app=p']],
  decodeSelector: ['app=d tier=x', ['app=d', 'tier=x']],
  prefillPolicy: ['random'],
  decodePolicy: ['random'],
  kvConnector: ['mooncake'],
  storeWait: ['off'],
  streamCoalesceMs: ['50', 50],
  swapSnapshots: ['/snapshots/{identity}'],
  swapTransition: ['sync'],
  swapBaseIdentity: ['step-0'],
  allowedHosts: ['router.example, *.example', ['router.example', '*.example']],
  tinkerTrainer: ['http://trainer:8000'],
  tinkerWeights: ['/ckpt/{model_id}/{checkpoint}'],
};

/** Text of a flag or variable that is right for the option and differs from its default, and what it comes to. */
function sampleOf(name: OptionName): { text: string; value: unknown } {
  const before = defaults[name];
  const sample = samples[name];
  if (sample !== undefined) return { text: sample[0], value: sample[1] ?? sample[0] };
  if (typeof before === 'boolean') return { text: before ? 'no' : 'yes', value: !before };
  if (typeof before === 'number') return { text: `${before + 1}`, value: before + 1 };
  if (Array.isArray(before)) return { text: 'http://a:1, http://b:2', value: ['http://a:1', 'http://b:2'] };
  // Without a default only the schema tells.
  const schema = innerSchema(options[name].schema);
  if (schema instanceof z.ZodEnum) return { text: String(schema.options[0]), value: schema.options[0] };
  if (schema instanceof z.ZodNumber) return { text: '1000000000', value: 1_000_000_000 };
  return { text: 'other', value: 'other' };
}

/** Options that are given only together with another. */
const partners: Partial<Record<OptionName, readonly OptionName[]>> = {
  prefill: ['pdDisaggregation'],
  decode: ['pdDisaggregation'],
  prefillPolicy: ['pdDisaggregation'],
  decodePolicy: ['pdDisaggregation'],
  kvConnector: ['vllmPdDisaggregation'],
  pdMinPromptTokens: ['vllmPdDisaggregation'],
  tlsCertPath: ['tlsKeyPath'],
  tlsKeyPath: ['tlsCertPath'],
  tlsClientCaPath: ['tlsCertPath', 'tlsKeyPath'],
  captureRequired: ['captureChat'],
  clientCertPath: ['clientKeyPath'],
  clientKeyPath: ['clientCertPath'],
  serviceDiscovery: ['selector'],
  endpointTargetPorts: ['serviceDiscovery', 'selector'],
  poolNamespace: ['poolName'],
  leaderElection: ['pickerPort'],
  selector: ['serviceDiscovery'],
  prefillSelector: ['serviceDiscovery', 'pdDisaggregation'],
  decodeSelector: ['serviceDiscovery', 'pdDisaggregation'],
};

test('every option can be set by flag, by variable and in the file', () => {
  for (const name of names) {
    if ((options[name] as OptionSpec).isFileOnly === true) continue;
    const set = [name, ...(partners[name] ?? [])];
    const { value } = sampleOf(name);
    const flags = Object.fromEntries(set.map((each) => [each, fromText(each, sampleOf(each).text)]));
    assert.deepEqual(loadConfig(flags, {}, undefined)[name], value, `--${kebab(name)}`);
    const env = Object.fromEntries(set.map((each) => [envName(each), sampleOf(each).text]));
    assert.deepEqual(loadConfig({}, env, undefined)[name], value, envName(name));
    for (const keyOf of [kebab, (name: string) => kebab(name).replaceAll('-', '_')]) {
      const file = fileOf(set.map((each) => `${keyOf(each)}: ${JSON.stringify(sampleOf(each).value)}\n`).join(''));
      assert.deepEqual(loadConfig({}, {}, file)[name], value, keyOf(name));
    }
  }
});

test('a label selector is split at its commas, not within its sets', () => {
  const split = (text: string): unknown => fromText('selector', text);
  assert.deepEqual(split('app=vllm,env in (prod, staging),tier!=small'), [
    'app=vllm',
    'env in (prod, staging)',
    'tier!=small',
  ]);
  assert.deepEqual(split('env notin(a,b) app=vllm'), ['env notin (a,b)', 'app=vllm']);
  const config = loadConfig(
    { serviceDiscovery: true, selector: split('env in (prod, staging),app=vllm') },
    {},
    undefined,
  );
  assert.deepEqual(config.selector, ['env in (prod, staging)', 'app=vllm']);
});

test('deployments are given in the file, with their defaults, and are checked', () => {
  const dep = 'accounts/acct/deployments/dep';
  const given = (text: string) => loadConfig({}, { TURNOUT_DEPLOYMENTS: 'ignored' }, fileOf(`deployments:\n${text}`));
  const lines = (name: string, more = ''): string =>
    `  - deployment: ${dep}-${name}\n    snapshots: /snapshots/{identity}\n${more}`;
  assert.deepEqual(given(lines('a')).deployments, [
    {
      deployment: `${dep}-a`,
      transition: 'async',
      snapshots: '/snapshots/{identity}',
      'base-identity': 'base',
      workers: 'all',
    },
  ]);
  const all =
    '    model: accounts/acct/models/m\n    transition: sync\n    base-identity: step-0\n    workers: [http://a:1]\n';
  assert.deepEqual(given(lines('a', all)).deployments[0]!.workers, ['http://a:1']);
  const problem = (text: string): string => errorOf(() => given(text));
  assert.match(problem(lines('a', '    transition: quick\n')), /deployments: 1\.transition /);
  assert.match(problem(lines('a') + lines('b', '    worker: x\n')), /deployments: 2 .*worker/);
  assert.match(problem(lines('a') + lines('a')), /has .*dep-a twice/);
  assert.match(problem(lines('a') + lines('b', '    workers: [http://a:1]\n')), /must list the same workers/);
  assert.match(problem(`${lines('a')}swap-snapshots: /s/{identity}\n`), /not both/);
});

test('a flag wins over a variable, that over the file, that over the default', () => {
  const file = fileOf('port: 1\n');
  assert.equal(loadConfig({ port: 3 }, { TURNOUT_PORT: '2' }, file).port, 3);
  assert.equal(loadConfig({}, { TURNOUT_PORT: '2' }, file).port, 2);
  assert.equal(loadConfig({}, {}, file).port, 1);
  assert.equal(loadConfig({}, {}, undefined).port, 30_000);
});

test('an unknown key in the file names the nearest option', () => {
  const messageOf = (text: string): string => errorOf(() => loadConfig({}, {}, fileOf(text)));
  assert.match(messageOf('prot: 1\n'), /unknown option "prot": did you mean "port"\?/);
  assert.match(messageOf('worker_url: []\n'), /unknown option "worker_url": did you mean "worker-urls"\?/);
  assert.match(messageOf('max-payload-sise: 1\n'), /"max-payload-sise": did you mean "max-payload-size"\?/);
  assert.match(messageOf('constructor: 1\n'), /unknown option "constructor"$/);
  assert.match(messageOf('nothing-like-it: 1\n'), /unknown option "nothing-like-it"$/);
});

test('a file that is no list of options is refused with its path', () => {
  for (const text of ['- port\n', 'port\n', '"a: b', '42\n']) {
    assert.match(
      errorOf(() => loadConfig({}, {}, fileOf(text))),
      /^--config .*turnout\.yaml: ./,
    );
  }
  assert.match(
    errorOf(() => loadConfig({}, {}, join(folder, 'missing.yaml'))),
    /--config .*missing\.yaml: .*ENOENT/,
  );
  assert.deepEqual(loadConfig({}, {}, fileOf('# nothing\n')), defaults);
});

test('a wrong value is worded with the name of its flag, all of them at once', () => {
  const message = errorOf(() =>
    loadConfig(
      { port: 70_000, explainBufferBytes: 2_000 },
      { TURNOUT_LOG_LEVEL: 'loud', TURNOUT_DISABLE_RETRIES: 'perhaps' },
      undefined,
    ),
  );
  assert.match(message, /^--port: 70000: must be at most 65535$/m);
  assert.match(message, /^--explain-buffer-bytes: must be 0 or at least 65536$/m);
  assert.match(message, /^TURNOUT_LOG_LEVEL: "loud": must be .*debug/m);
  assert.match(message, /^TURNOUT_DISABLE_RETRIES: "perhaps" is not true or false$/m);
  for (const [name, text] of [
    ['port', '80a'],
    ['port', ''],
    ['port', '1.5'],
    ['port', '-1'],
    ['requestTimeoutSecs', 'soon'],
    ['healthFailureThreshold', '0'],
    ['healthCheckEndpoint', 'health'],
    ['policy', 'best'],
  ] as const) {
    const message = errorOf(() => loadConfig({}, { [envName(name)]: text }, undefined));
    assert.ok(message.startsWith(`${envName(name)}: `), message);
    assert.doesNotMatch(message, /Invalid|expected|received/);
  }
});

test('a wrong value in the file is named with its line', () => {
  const file = fileOf('host: 127.0.0.1\nport: x\n');
  assert.match(
    errorOf(() => loadConfig({}, {}, file)),
    /turnout\.yaml line 2: port: "x" is not a number$/,
  );
});

test('a list in the file may be written as the flag is', () => {
  const { workerUrls } = loadConfig({}, {}, fileOf('worker-urls: http://a:1, http://b:2\n'));
  assert.deepEqual(workerUrls, ['http://a:1', 'http://b:2']);
});

test('a misspelled variable names the nearest option', () => {
  assert.deepEqual(unknownVariables({ TURNOUT_PROT: '1', TURNOUT_PORT: '1', TURNOUT_SOMETHING_ELSE: '', PATH: '' }), [
    'TURNOUT_PROT is not an option: did you mean TURNOUT_PORT?',
  ]);
});

test('a value says where it comes from', () => {
  const file = fileOf('port: 1\nhost: a\n');
  const places = originsOf({ policy: 'random' }, { TURNOUT_HOST: 'b' }, file, { logLevel: 'debug' });
  const told = (['policy', 'host', 'port', 'logLevel', 'dataDir'] as const).map((name) => places.get(name));
  assert.deepEqual(told, [
    '--policy',
    'TURNOUT_HOST',
    `${file} line 1: port`,
    '--log-level (set by the command)',
    'default',
  ]);
});

test('a certificate is of no use without its key', () => {
  assert.match(
    errorOf(() => loadConfig({ tlsCertPath: 'a' }, {}, undefined)),
    /--tls-cert-path and --tls-key-path/,
  );
  assert.match(
    errorOf(() => loadConfig({ tlsKeyPath: 'a' }, {}, undefined)),
    /--tls-cert-path and --tls-key-path/,
  );
});

test('lists are separated by spaces, commas or both', () => {
  assert.deepEqual(splitList(['a b,c', ' d ,, e\n']), ['a', 'b', 'c', 'd', 'e']);
  assert.deepEqual(splitList(['', ' , ']), []);
  assert.deepEqual(fromText('workerUrls', 'a, b'), ['a', 'b']);
});

test('a list of numbers is also JSON, and the message shows the element that is no number', () => {
  const of = (text: string) => loadConfig({}, { TURNOUT_RETRY_STATUSES: text }, undefined).retryStatuses;
  for (const text of ['500 502', '500,502', '[500, 502]', '["500","502"]'])
    assert.deepEqual(of(text), [500, 502], text);
  assert.deepEqual(of('[]'), []);
  assert.equal(
    errorOf(() => of('[500, x]')),
    'TURNOUT_RETRY_STATUSES: "x" is not a number',
  );
  assert.equal(
    errorOf(() => of('[500, 99]')),
    'TURNOUT_RETRY_STATUSES: 99: must be at least 400',
  );
  assert.equal(
    errorOf(() => loadConfig({}, {}, fileOf('retry-statuses: [500, null]\n'))),
    `${fileOf('retry-statuses: [500, null]\n')} line 1: retry-statuses: null is not a number`,
  );
});

test('a list as JSON has elements with spaces and commas', () => {
  const keys = ['long secret,0', '["', ''];
  for (const name of ['adminApiKey', 'plugin', 'selector'] as const) {
    assert.deepEqual(fromText(name, JSON.stringify(keys)), keys);
    assert.deepEqual(fromText(name, ' [ ] '), []);
  }
  assert.deepEqual(loadConfig({}, { TURNOUT_ADMIN_API_KEY: '["se,cret"]' }, undefined).adminApiKey, ['se,cret']);
  // No JSON: an address in brackets, and a key that must not become two.
  assert.deepEqual(fromText('workerUrls', '[::1]:80,[::2]:80'), ['[::1]:80', '[::2]:80']);
  assert.deepEqual(fromText('adminApiKey', '["se,cret]'), ['["se,cret]']);
  assert.match(
    errorOf(() => loadConfig({}, { TURNOUT_ADMIN_API_KEY: '["a", 1]' }, undefined)),
    /^TURNOUT_ADMIN_API_KEY: /,
  );
});

test('texts of flags and numbers are read, wrong ones left for the schema to refuse', () => {
  for (const text of ['1', 'true', 'YES', 'on']) assert.equal(fromText('disableRetries', text), true);
  for (const text of ['0', 'false', 'No', 'off', '']) assert.equal(fromText('disableRetries', text), false);
  assert.equal(fromText('disableRetries', '2'), '2');
  assert.equal(fromText('healthCheckIntervalSecs', ' 0.5 '), 0.5);
  // One without a default.
  assert.equal(fromText('hashLoadFactor', '1.25'), 1.25);
  for (const text of ['1e3', '0x10', '', 'NaN', 'Infinity']) assert.equal(fromText('port', text), text);
});
