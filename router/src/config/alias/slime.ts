import { ConfigError } from '../load.ts';
import type { OptionName } from '../options.ts';
import { splitPlugins } from '../split-list.ts';
import { type AliasFlag, type Given, type Peer, type Values, not, readAs, renamed, same } from './alias.ts';

/** slime has no timeout; a week has the same effect and fits a timer. */
const WAIT_SECS = 604_800;
const WAITING = 1_000_000;

const bound: readonly OptionName[] = ['maxConcurrentRequests', 'queueSize', 'queueTimeoutSecs'];
const waiting = { queueSize: WAITING, queueTimeoutSecs: WAIT_SECS };

function maxConnections(texts: readonly string[]): Values {
  return { ...readAs('maxConcurrentRequests', texts), ...waiting };
}

/** A whole number above 0 after a flag, or slime's default. */
function countOf(given: Given, name: string, fallback: number): number {
  const text = given.get(name)?.at(-1);
  if (text === undefined) return fallback;
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new ConfigError(`--${name}: expected a whole number above 0`);
}

/** As many connections as the engines of these GPUs serve at once, by slime's formula. */
function engineConnections(given: Given): Values {
  const concurrency = countOf(given, 'sglang-server-concurrency', 512);
  const perEngine = countOf(given, 'rollout-num-gpus-per-engine', 1);
  if (!given.has('rollout-num-gpus')) return {};
  const connections = Math.floor((concurrency * countOf(given, 'rollout-num-gpus', 1)) / perEngine);
  return { maxConcurrentRequests: Math.max(1, connections), ...waiting };
}

/** One of the three flags of the trainer from which slime computes the number of connections. */
const fleetSize = (name: string, note: string): AliasFlag => ({
  name,
  takes: 'one',
  verdict: 'differs',
  ours: bound,
  note,
  read: () => ({}),
  implies: engineConnections,
});

/** Both spellings make one list. */
const plugins = (name: string, note: string): AliasFlag => ({
  ...renamed(name, 'plugin', note),
  read: (_, given) => ({
    plugin: ['slime-router-middleware-paths', 'plugin'].flatMap((each) =>
      (given.get(each) ?? []).flatMap((text) => splitPlugins(text)),
    ),
  }),
});

const flags: readonly AliasFlag[] = [
  same('host', '0.0.0.0'),
  same('port'),
  renamed('sglang-router-ip', 'host', 'In slime it also means that slime starts no router.'),
  renamed('sglang-router-port', 'port', 'Default: 30000; slime picks a random port.'),
  not('use-slime-router', 'nothing', 'this command always runs this router.'),
  plugins(
    'slime-router-middleware-paths',
    'Files or packages in JavaScript or TypeScript. Python classes are not supported: the start is refused.',
  ),
  plugins('plugin', ''),
  renamed('slime-router-timeout', 'requestTimeoutSecs', 'Limits the whole request; in slime each wait for the engine.'),
  {
    ...renamed(
      'slime-router-max-connections',
      'maxConcurrentRequests',
      'Maximum requests in flight; further requests are queued, as in slime.',
    ),
    ours: bound,
    read: maxConnections,
  },
  renamed(
    'slime-router-health-check-failure-threshold',
    'healthFailureThreshold',
    'A failed worker is readmitted when it is healthy again; in slime it never is. A worker that never answered is unhealthy at its first failed check.',
    3,
  ),
  renamed('rollout-health-check-interval', 'healthCheckIntervalSecs', '', 30),
  renamed('sglang-router-policy', 'policy', '', 'least_inflight'),
  renamed('sglang-router-request-timeout-secs', 'requestTimeoutSecs', 'Default: no limit.'),
  { ...renamed('verbose', 'logLevel', 'The level debug.'), takes: 'nothing', read: () => ({ logLevel: 'debug' }) },
  not('sglang-host', 'one', 'workers are named with --worker-urls or added by POST /add_worker.'),
  not('sglang-port', 'one', 'workers are named with --worker-urls or added by POST /add_worker.'),
  not('tokenizer-name', 'one', 'the plugins radix-tree and chat-sessions take --tokenizer-path.'),
  fleetSize(
    'rollout-num-gpus',
    'Limits requests in flight to --sglang-server-concurrency × this / --rollout-num-gpus-per-engine, unless --slime-router-max-connections is given.',
  ),
  fleetSize('sglang-server-concurrency', 'Used with --rollout-num-gpus only; 512 in slime.'),
  fleetSize('rollout-num-gpus-per-engine', 'Used with --rollout-num-gpus only; 1 in slime.'),
];

export const slime: Peer = {
  name: 'SlimeRouter',
  source: 'slime of early 2026 and its documentation',
  verbs: ['slime-router', 'slime_router'],
  flags,
  // It opens no port for metrics: two of them on one host differ in --port alone.
  settings: { workerApi: 'slime', prometheusPort: 0 },
};
