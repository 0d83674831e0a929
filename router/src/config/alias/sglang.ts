import { ConfigError } from '../load.ts';
import { type AliasFlag, type Peer, not, renamed, same, vital } from './alias.ts';
import {
  anyOrigin,
  breaker,
  caCertPaths,
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

const noTokenizer = 'the router does not tokenise prompts; /v1/tokenize goes to an engine.';
const noParsers = 'engines parse their output: give the flag to the engines.';
const noHistory = 'engines store responses and conversations.';
const noTokens =
  'access is controlled by keys only (--admin-api-key); without this check every client would have access.';

const tracesNote = 'Spans are sent by OTLP over HTTP, there by gRPC: host:4317 becomes http://host:4318.';
/** As sglang-router's, whose port is that of gRPC. */
const GRPC_ADDRESS = 'localhost:4317';

function tracesEndpoint(address = GRPC_ADDRESS): string {
  return (/^https?:/.test(address) ? address : `http://${address}`).replace(/:4317(?=\/|$)/, ':4318');
}

/** `id:name:role:key` each. */
function controlPlaneKeys(texts: readonly string[]) {
  const keys = texts.map((text) => {
    const [, role, key] = /^[^:]*:[^:]*:([^:]*):(.+)$/.exec(text) ?? [];
    // The value may have a key, so it is not shown.
    if (key === undefined) throw new ConfigError('--control-plane-api-keys: give each as id:name:role:key');
    if (role !== 'admin')
      throw new ConfigError('--control-plane-api-keys: only keys of the role "admin" are known here');
    return key;
  });
  return { adminApiKey: keys };
}

const flags: readonly AliasFlag[] = [
  same('host'),
  same('port'),
  same('worker-urls'),

  same('policy', 'cache_aware'),
  same('cache-threshold', 0.5),
  same('balance-abs-threshold', 32),
  same('balance-rel-threshold', 1.0001),
  same('bucket-adjust-interval-secs'),
  eviction,
  treeSize(
    'Characters of prompts of all workers together, rounded to blocks of 64. In sglang-router the limit is per worker.',
    16_777_216,
  ),
  same('max-idle-secs'),
  same('assignment-mode'),
  same('max-payload-size', 268_435_456),
  same('dp-aware'),
  severalModels,

  same('pd-disaggregation'),
  ...pairs,
  renamed(
    'worker-startup-timeout-secs',
    'workerStartupTimeoutSecs',
    'The router starts immediately; a worker that does not answer is reported as failed after this time.',
    300,
  ),
  startupCheckInterval(10),

  ...discovery,
  same('bootstrap-port-annotation'),

  same('log-dir'),
  logLevel,
  same('prometheus-port'),
  same('prometheus-host'),
  not('prometheus-duration-buckets', 'many', 'the buckets of turnout_request_duration_seconds are fixed.'),

  requestIdHeaders,
  same('request-timeout-secs', 600),
  same('shutdown-grace-period-secs'),
  anyOrigin,

  maxConcurrent,
  ...queue,

  same('retry-max-retries', 3),
  same('retry-initial-backoff-ms', 100),
  same('retry-max-backoff-ms', 10_000),
  same('retry-backoff-multiplier', 2),
  same('retry-jitter-factor', 0.1),
  same('disable-retries'),
  ...breaker([5, 2, 30, 60]),
  ...health,
  same('disable-health-check'),

  not('model-path', 'one', noTokenizer),
  renamed(
    'tokenizer-path',
    'tokenizerPath',
    'a tokenizer.json or its folder, for the plugins radix-tree and chat-sessions; nothing else reads it.',
  ),
  not('chat-template', 'one', noTokenizer),
  not('tokenizer-cache-enable-l0', 'nothing', noTokenizer),
  not('tokenizer-cache-l0-max-entries', 'one', noTokenizer),
  not('tokenizer-cache-enable-l1', 'nothing', noTokenizer),
  not('tokenizer-cache-l1-max-memory', 'one', noTokenizer),
  not('reasoning-parser', 'one', noParsers),
  not('tool-call-parser', 'one', noParsers),
  not('mcp-config-path', 'one', 'engines call tools: give the flag to the engines.'),
  not('backend', 'one', 'the router detects the kind of each engine; any OpenAI server works.', ['sglang']),
  not('history-backend', 'one', noHistory, ['memory', 'none']),
  not('oracle-wallet-path', 'one', noHistory),
  not('oracle-tns-alias', 'one', noHistory),
  not('oracle-connect-descriptor', 'one', noHistory),
  not('oracle-username', 'one', noHistory),
  not('oracle-password', 'one', noHistory),
  not('oracle-pool-min', 'one', noHistory),
  not('oracle-pool-max', 'one', noHistory),
  not('oracle-pool-timeout-secs', 'one', noHistory),
  not('postgres-db-url', 'one', noHistory),
  not('postgres-pool-max', 'one', noHistory),
  not('redis-url', 'one', noHistory),
  not('redis-pool-max', 'one', noHistory),
  not('redis-retention-days', 'one', noHistory),

  same('client-cert-path'),
  same('client-key-path'),
  {
    ...renamed('ca-cert-paths', 'caCertPath', 'One file, which may contain several authorities.'),
    takes: 'many',
    read: caCertPaths,
  },
  same('tls-cert-path'),
  same('tls-key-path'),
  {
    ...renamed('enable-trace', 'otlpTracesEndpoint', tracesNote),
    takes: 'nothing',
    read: (_, given) => ({ otlpTracesEndpoint: tracesEndpoint(given.get('otlp-traces-endpoint')?.at(-1)) }),
  },
  {
    ...renamed('otlp-traces-endpoint', 'otlpTracesEndpoint', `With --enable-trace only. ${tracesNote}`),
    read: () => ({}),
  },

  renamed('api-key', 'apiKey', 'Protects the router and is sent to the engines once; sglang-router sends it twice.'),
  {
    ...renamed('control-plane-api-keys', 'adminApiKey', 'Keys of the role "admin" only; ids and names are not used.'),
    read: controlPlaneKeys,
  },
  not('control-plane-audit-enabled', 'nothing', 'use --access-log and --log-dir for a line per request.'),
  vital('jwt-issuer', 'one', noTokens),
  vital('jwt-audience', 'one', noTokens),
  vital('jwt-jwks-uri', 'one', noTokens),
  vital('jwt-role-mapping', 'many', noTokens),
];

/** Defaults are those of the documentation of 0.5.2 if it has one, else the current ones. */
export const sglang: Peer = {
  name: 'sglang-router',
  source: 'sglang-router 0.3.2 and the documentation of SGLang 0.5.2',
  verbs: ['launch_router', 'launch-router'],
  flags,
  settings: { workerApi: 'sglang', metricsCompat: 'sglang', sendApiKeyToWorkers: true, maxEjectedPercent: 100 },
};
