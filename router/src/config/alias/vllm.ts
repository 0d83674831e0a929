import { ConfigError } from '../load.ts';
import { type AliasFlag, type Given, type Peer, type Values, not, readAs, renamed, same, vital } from './alias.ts';
import {
  anyOrigin,
  breaker,
  discovery,
  eviction,
  health,
  logLevel,
  maxConcurrent,
  pairs,
  queue,
  requestIdHeaders,
  severalModels,
  startupCheckInterval,
  treeSize,
} from './shared.ts';

const noScheduling = 'programs are not scheduled; the policies rollout and sticky_least_loaded keep sessions in place.';
const noWeights = 'kv_aware has fixed weights.';
const noGate = 'WASM components are not run, and requests that this one rejects would be served.';

/** `URL=ENDPOINT[,ENDPOINT…]`: several endpoints are those of the engine's ranks, in order. */
function byRank(text: string): [worker: string, endpoint: string][] {
  const at = text.search(/=(tcp|ipc):\/\//);
  const url = at < 0 ? text : text.slice(0, at);
  const endpoints = at < 0 ? [''] : text.slice(at + 1).split(',');
  return endpoints.map((endpoint, rank) => [endpoints.length === 1 ? url : `${url}@${rank}`, endpoint]);
}

/** Their two flags are one list here, in which a replay follows its worker. */
function kvEvents(sources: readonly string[], given: Given): Values {
  const replays = new Map((given.get('kv-event-replay-source') ?? []).flatMap(byRank));
  const entries = sources.flatMap(byRank).flatMap(([worker, endpoint]) => {
    const replay = replays.get(worker);
    return [`${worker}=${endpoint}`, ...(replay === undefined ? [] : [`replay=${replay}`])];
  });
  return { kvEventEndpoints: entries };
}

/** The documentation's name. */
const pairMode: AliasFlag = {
  ...renamed('mode', 'vllmPdDisaggregation', 'pd is equivalent to --vllm-pd-disaggregation; regular is the default.'),
  takes: 'one',
  moot: ['regular'],
  read(texts) {
    if (texts.at(-1) !== 'pd') throw new ConfigError(`--mode: "${texts.at(-1)}" is not a mode: use pd or regular`);
    return { vllmPdDisaggregation: true };
  },
};

/** The documentation's `--prefill-workers a,b`, in one list with `--prefill`. */
const workerList = (role: 'prefill' | 'decode'): AliasFlag => ({
  ...renamed(`${role}-workers`, role, `The same as --${role}, with commas.`),
  read: (texts, given) => readAs(role, [...(given.get(role) ?? []), ...texts]),
});

/** Their flag for prefill engines, in the same list. */
const pairKvEvents = (sources: readonly string[], given: Given): Values =>
  kvEvents([...(given.get('kv-event-source') ?? []), ...sources], given);

/** Read together with the events. A replay of a worker without events is an error. */
function replaysOfOthers(replays: readonly string[], given: Given): Values {
  const sources = ['kv-event-source', 'pd-kv-events'].flatMap((flag) => given.get(flag) ?? []);
  const known = new Set(sources.flatMap(byRank).map(([worker]) => worker));
  const other = replays.flatMap(byRank).find(([worker]) => !known.has(worker));
  if (other === undefined) return {};
  throw new ConfigError(`--kv-event-replay-source: ${other[0]} has no --kv-event-source of its own`);
}

const kvNote =
  'One list here: worker=endpoint, then replay=endpoint. Workers that are not in the list use --kv-event-port.';

const flags: readonly AliasFlag[] = [
  same('host'),
  same('port'),
  same('worker-urls'),
  not('enable-program-scheduling', 'nothing', noScheduling),
  not('program-scheduling-config-json', 'one', noScheduling),

  same('policy', 'cache_aware'),
  not('router-temperature', 'one', noWeights, ['0', '0.0']),
  not('kv-penalty-host', 'one', noWeights),
  not('kv-penalty-external', 'one', noWeights),
  not('kv-penalty-disk', 'one', noWeights),
  not(
    'kv-aware-session-affinity-ttl-secs',
    'one',
    'kv_aware uses caches only; sticky_least_loaded keeps sessions on workers.',
  ),
  { ...renamed('kv-event-source', 'kvEventEndpoints', kvNote), read: kvEvents },
  { ...renamed('kv-event-replay-source', 'kvEventEndpoints', kvNote), read: replaysOfOthers },
  not('kv-event-block-size', 'one', 'engines report it in their events.'),
  not('kv-event-model', 'one', 'engines are asked which model they serve.'),
  { ...renamed('pd-kv-events', 'kvEventEndpoints', kvNote), read: pairKvEvents },

  same('vllm-pd-disaggregation'),
  pairMode,
  ...pairs,
  // After these, whose values they include.
  workerList('prefill'),
  workerList('decode'),
  vital('vllm-discovery-address', 'one', 'registration over ZeroMQ is not supported, so there would be no workers.'),
  renamed('kv-connector', 'kvConnector', 'The connector moriio is not supported.'),
  renamed(
    'worker-startup-timeout-secs',
    'workerStartupTimeoutSecs',
    'The router starts and POST /add_worker answers immediately; a worker that does not answer is reported as failed after this time.',
    600,
  ),
  startupCheckInterval(30),

  same('cache-threshold', 0.5),
  same('balance-abs-threshold', 32),
  same('balance-rel-threshold', 1.1),
  eviction,
  treeSize(
    'Characters of prompts; here rounded to blocks of 64, of all workers together. The documented default of 10000 is in nodes of any size, so the default of turnout applies: 1048576 blocks.',
  ),
  same('max-payload-size', 536_870_912),
  vital('wasm-middleware', 'one', noGate),
  vital('wasm-middleware-sha256', 'one', noGate),
  vital('wasm-middleware-route', 'many', noGate),
  same('intra-node-data-parallel-size'),
  severalModels,
  {
    ...renamed(
      'api-key',
      'workerApiKey',
      'For the engines only, as in vllm-router: the router stays open. Protect it with --admin-api-key, or with api-key in --config.',
    ),
    warning:
      'is the key for the engines only: the router itself is open, and everyone who can reach it may send requests. Give api-key in --config for a key that clients must send, and --admin-api-key for control requests.',
  },

  same('log-dir'),
  logLevel,
  ...discovery,
  same('prometheus-port'),
  same('prometheus-host'),
  requestIdHeaders,
  same('request-timeout-secs', 1_800),

  same('retry-max-retries', 5),
  same('retry-initial-backoff-ms', 50),
  same('retry-max-backoff-ms', 30_000),
  same('retry-backoff-multiplier', 1.5),
  same('retry-jitter-factor', 0.2),
  same('disable-retries'),
  ...breaker([10, 3, 60, 120]),
  ...health,
  maxConcurrent,
  ...queue,
  anyOrigin,
];

/** Defaults are those of the documentation of its policies if it has one, else the current ones. */
export const vllm: Peer = {
  name: 'vllm-router',
  source: 'vllm-router 0.1.17 and the documentation of its policies',
  verbs: ['vllm-router', 'vllm_router'],
  flags,
  settings: { workerApi: 'vllm', metricsCompat: 'vllm', keyOrder: 'vllm-router', maxEjectedPercent: 100 },
};
