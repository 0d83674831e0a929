import { ConfigError } from '../load.ts';
import { type AliasFlag, type Given, type Values, not, readAs, renamed, same } from './alias.ts';

/** Flags that SGLang's and vLLM's routers share by their common origin. */

const miniLb = not('mini-lb', 'nothing', 'there is one router, and it does more.');

/** Prefill/decode pairs, once enabled. */
export const pairs: readonly AliasFlag[] = [
  same('prefill-policy'),
  same('decode-policy'),
  same('prefill'),
  same('decode'),
  miniLb,
];

export const discovery: readonly AliasFlag[] = [
  same('service-discovery'),
  same('selector'),
  same('service-discovery-port'),
  renamed(
    'service-discovery-namespace',
    'serviceDiscoveryNamespace',
    "Without it pods of the router's own namespace are found, there of all; * finds all here.",
  ),
  same('prefill-selector'),
  same('decode-selector'),
];

export const severalModels: AliasFlag = not(
  'enable-igw',
  'nothing',
  'where workers have several models, requests go by model in any case.',
);

export const startupCheckInterval = (fallback: number): AliasFlag =>
  renamed(
    'worker-startup-check-interval',
    'workerStartupCheckInterval',
    'The longest pause: a new worker is asked every second at first.',
    fallback,
  );

/** A character budget there, blocks of at least 64 characters here. */
const CHARS_PER_BLOCK = 64;
const blocksFor = (chars: number): number => Math.max(1_024, Math.round(chars / CHARS_PER_BLOCK));

export function treeSize(note: string, fallbackChars?: number): AliasFlag {
  const read = (texts: readonly string[]): Values => {
    const { maxTreeSize } = readAs('maxTreeSize', texts);
    return { maxTreeSize: typeof maxTreeSize === 'number' && maxTreeSize >= 0 ? blocksFor(maxTreeSize) : maxTreeSize };
  };
  const flag = { ...renamed('max-tree-size', 'maxTreeSize', note), read };
  return fallbackChars === undefined ? flag : { ...flag, fallback: { maxTreeSize: blocksFor(fallbackChars) } };
}

export const eviction: AliasFlag = not(
  'eviction-interval-secs',
  'one',
  'what is remembered of prompts is kept within --max-tree-size at every request.',
);

/** `-1`: no limit, which is our default. Their default is a rate limit that no fleet reaches. */
export const maxConcurrent: AliasFlag = {
  ...renamed(
    'max-concurrent-requests',
    'maxConcurrentRequests',
    'Limits the requests in flight; that router limits requests per second. Unset: no limit.',
  ),
  read: (texts) => (texts.at(-1) === '-1' ? { maxConcurrentRequests: 0 } : readAs('maxConcurrentRequests', texts)),
};

/** Their bucket has as many tokens as requests may be in flight. */
function rateLimit(texts: readonly string[], given: Given): Values {
  const most = given.get('max-concurrent-requests')?.at(-1) ?? '';
  const burst = /^[1-9]\d{0,8}$/.test(most) ? { rateLimitBurst: Number(most) } : {};
  return { ...readAs('rateLimitTokensPerSecond', texts), ...burst };
}

export const queue: readonly AliasFlag[] = [
  renamed('queue-size', 'queueSize', 'When the queue is full: 429; there 408.'),
  renamed('queue-timeout-secs', 'queueTimeoutSecs', 'When the wait is over: 503; there 408.'),
  {
    ...renamed(
      'rate-limit-tokens-per-second',
      'rateLimitTokensPerSecond',
      'A limit of its own; there the rate at which --max-concurrent-requests is refilled. So many requests are admitted at once here too.',
    ),
    ours: ['rateLimitTokensPerSecond', 'rateLimitBurst'],
    read: rateLimit,
  },
];

export const requestIdHeaders: AliasFlag = same('request-id-headers', ['x-correlation-id', 'x-trace-id', 'request-id']);
export const anyOrigin: AliasFlag = same('cors-allowed-origins', ['*']);

/** SGLang's router says `warn`. Levels in capitals are accepted by its `RouterArgs` in Python only (0.3.2). */
export const logLevel: AliasFlag = {
  ...same('log-level'),
  read: (texts) => {
    const level = texts.at(-1)?.toLowerCase() ?? '';
    return readAs('logLevel', [level === 'warn' ? 'warning' : level]);
  },
};

export function caCertPaths(texts: readonly string[]): Values {
  if (texts.length > 1) throw new ConfigError('--ca-cert-paths: give one file that holds all authorities');
  return readAs('caCertPath', texts);
}

export const health: readonly AliasFlag[] = [
  same('health-failure-threshold'),
  same('health-success-threshold'),
  same('health-check-timeout-secs'),
  renamed('health-check-interval-secs', 'healthCheckIntervalSecs', 'A worker in doubt is asked every second.', 60),
  same('health-check-endpoint'),
];

const breakerNote = 'A 4xx response is not a failure. A half-open breaker allows one request at a time.';

/** Failures, successes, and the seconds of the delay and of the window. */
export const breaker = (defaults: readonly [number, number, number, number] | null): readonly AliasFlag[] => [
  renamed('cb-failure-threshold', 'cbFailureThreshold', breakerNote, defaults?.[0]),
  same('cb-success-threshold', defaults?.[1]),
  same('cb-timeout-duration-secs', defaults?.[2]),
  renamed(
    'cb-window-duration-secs',
    'cbWindowDurationSecs',
    'turnout applies this window; sglang-router and vllm-router ignore it.',
    defaults?.[3],
  ),
  same('disable-circuit-breaker'),
];
