import { z } from 'zod';

/** Names of the routing policies; `choose/policies.ts` has one for each. */
export const policyNames = [
  'rollout',
  'least_inflight',
  'round_robin',
  'random',
  'power_of_two',
  'consistent_hash',
  'sticky_least_loaded',
  'manual',
  'cache_aware',
  'prefix_hash',
  'bucket',
  'kv_aware',
] as const;
export type PolicyName = (typeof policyNames)[number];

/** Other names under which policies are known. */
const otherNames: Readonly<Record<string, PolicyName>> = { consistent_hashing: 'consistent_hash' };

/** A name in any spelling (`-` and `_` are the same), or a path to a module of the user's own, which stays as it is. */
export function policyName(text: string): string {
  const name = text.replaceAll('-', '_');
  return isPath(text) ? text : (otherNames[name] ?? name);
}

/** `./my-policy.ts`, `/opt/policy.js`, `policies/mine.mjs`. */
export const isPath = (text: string): boolean => /[/\\]|\.[cm]?[jt]s$/.test(text);

const policy = z
  .string()
  .transform(policyName)
  .refine((name) => isPath(name) || (policyNames as readonly string[]).includes(name), {
    message: `no such policy. Choose ${policyNames.join(', ')}, or give the path of a module (./my-policy.ts)`,
  });

/** Headers that name a session, in the order in which they are believed: SGLang, Fireworks (two), vLLM and SkyRL. */
const sessionHeaders = ['x-smg-routing-key', 'x-multi-turn-session-id', 'x-session-affinity', 'x-session-id'];

/** Names of the orders in which routing keys are looked for; `classify/keys.ts` has one for each. */
const keyOrders = ['turnout', 'vllm-router'] as const;
export type KeyOrder = (typeof keyOrders)[number];

/** Where an option stands in `--help` and in the reference. */
export type OptionGroup = 'Server' | 'Workers' | 'Routing' | 'Health' | 'Limits' | 'Observability' | 'TLS';

export interface OptionSpec<S extends z.ZodType = z.ZodType> {
  readonly group: OptionGroup;
  readonly help: string;
  /** How the value is written in help: `<secs>`; '' for a flag without a value. */
  readonly value: string;
  readonly schema: S;
}

const option = <S extends z.ZodType>(group: OptionGroup, value: string, schema: S, help: string): OptionSpec<S> => ({
  group,
  value,
  schema,
  help,
});

const port = z.int().min(0).max(65_535);
const secs = z
  .number()
  .min(0)
  .max(86_400 * 30);
const count = z.int().min(0);
const flag = z.boolean().default(false);
const file = z.string().min(1).optional();

/**
 * Every option of `turnout serve`, once: name (camelCase here; `--kebab-case`, `TURNOUT_UPPER_CASE` and YAML keys follow),
 * type, default, help. Types, help, environment, file and reference are made from this list.
 *
 * Names are those of SGLang's router where it has the option, then those of the other routers in use.
 */
export const options = {
  host: option('Server', '<address>', z.string().min(1).default('127.0.0.1'), 'Address to listen on.'),
  port: option('Server', '<port>', port.default(30_000), 'Port to listen on; 0 picks a free one.'),
  shutdownGracePeriodSecs: option(
    'Server',
    '<secs>',
    secs.default(180),
    'On SIGTERM: how long requests under way may take to finish before they are cut.',
  ),
  allowHalfClose: option(
    'Server',
    '',
    flag,
    'Serve clients that close their sending side after the request. Off: such a client counts as gone and its work is stopped.',
  ),
  forwardedHeaders: option(
    'Server',
    '',
    flag,
    'Tell engines about the client: x-forwarded-for, -proto, -host and via.',
  ),

  workerUrls: option(
    'Workers',
    '<urls...>',
    z.array(z.string().min(1)).default([]),
    'Engines to route to, http://host:port each (http://host:port@2: its data-parallel rank 2), separated by spaces or commas. More can be added while running.',
  ),
  connectTimeoutMs: option(
    'Workers',
    '<ms>',
    z.int().min(1).default(5_000),
    'How long connecting to an engine may take before the next one is tried.',
  ),
  workerIdleTimeoutMs: option(
    'Workers',
    '<ms>',
    z.int().min(1).default(4_000),
    'Idle connections to engines are closed after this long; keep it below the engines own (uvicorn: 5000).',
  ),

  policy: option(
    'Routing',
    '<name>',
    policy.default('rollout'),
    `How a worker is chosen: ${policyNames.join(', ')}, or the path of a module of your own.`,
  ),
  modelPolicy: option(
    'Routing',
    '<model=name...>',
    z.array(z.string().regex(/^.+=.+$/, 'expected model=policy')).default([]),
    'Other policies for the requests that name these models.',
  ),
  sessionHeaders: option(
    'Routing',
    '<names...>',
    z
      .array(
        z
          .string()
          .regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/, 'not a header name')
          .toLowerCase(),
      )
      .default([...sessionHeaders]),
    'Headers that name a session, in the order in which they are believed.',
  ),
  keyOrder: option(
    'Routing',
    '<order>',
    z.enum(keyOrders).default('turnout'),
    'Where the key that steers placement is looked for: turnout (sessions first, wherever they stand) or vllm-router (that router’s eleven places).',
  ),
  hashLoadFactor: option(
    'Routing',
    '<factor>',
    z.number().min(0).max(100).optional(),
    'consistent_hash, prefix_hash: no worker gets more than this many times its share of the requests under way; the next one on the ring does. 0: no bound. Default: none for consistent_hash, 1.25 for prefix_hash.',
  ),
  prefixHashTokens: option(
    'Routing',
    '<count>',
    count.min(16).default(256),
    'prefix_hash: so much of the prompt steers it, in tokens (ids, or 4 bytes of text).',
  ),
  engineLoadIntervalSecs: option(
    'Routing',
    '<secs>',
    secs.default(0),
    'power_of_two: how often engines are asked how many requests they have, so that those of other routers count too. 0: never, the own ones count.',
  ),
  sessionTtlSecs: option(
    'Routing',
    '<secs>',
    secs.min(1).default(7_200),
    'sticky_least_loaded: a session without a request for so long has ended.',
  ),
  assignmentMode: option(
    'Routing',
    '<mode>',
    z.enum(['random', 'min_load', 'min_group']).default('random'),
    'manual: how a new key gets its worker: random, min_load (fewest requests under way) or min_group (fewest keys).',
  ),
  maxIdleSecs: option(
    'Routing',
    '<secs>',
    secs.min(1).default(14_400),
    'manual: a key without a request for so long is forgotten.',
  ),
  cacheThreshold: option(
    'Routing',
    '<share>',
    z.number().min(0).max(1).default(0.5),
    'cache_aware: the share of a prompt that a worker must have seen before it is preferred for it.',
  ),
  balanceAbsThreshold: option(
    'Routing',
    '<count>',
    count.default(32),
    'cache_aware, bucket: the least loaded worker is taken when the most loaded one has more than this many requests more, and more than --balance-rel-threshold times as many.',
  ),
  balanceRelThreshold: option(
    'Routing',
    '<factor>',
    z.number().min(1).default(1.1),
    'cache_aware, bucket: see --balance-abs-threshold; both must be exceeded.',
  ),
  evictionIntervalSecs: option(
    'Routing',
    '<secs>',
    secs.optional(),
    'Taken for the sake of other routers’ command lines, without effect: what is remembered of prompts is kept within --max-tree-size at every request.',
  ),
  maxTreeSize: option(
    'Routing',
    '<blocks>',
    count.min(1_024).default(1_048_576),
    'cache_aware, rollout: blocks of prompts that are remembered, of all workers together; the least recently used go first. A block is 64 bytes in the first 4 KB of a prompt, 512 bytes after.',
  ),
  bucketAdjustIntervalSecs: option(
    'Routing',
    '<secs>',
    secs.min(0.1).default(5),
    'bucket: how often the bands of prompt lengths are cut anew.',
  ),
  kvEventEndpoints: option(
    'Routing',
    '<pairs...>',
    z
      .array(
        z.string().regex(/=(tcp|ipc):\/\//, 'expected worker=endpoint, for example http://gpu-1:8000=tcp://gpu-1:5557'),
      )
      .default([]),
    'kv_aware: where workers tell of their caches, http://worker:port=tcp://host:port each; replay=tcp://host:port after one of them: where it gives missed events again.',
  ),
  kvEventPort: option(
    'Routing',
    '<port>',
    port.min(1).default(5_557),
    'kv_aware: where all other workers tell of their caches, on their own host; a DP rank is added to it.',
  ),
  kvReplayPort: option(
    'Routing',
    '<port>',
    port.min(1).optional(),
    'kv_aware: where they give missed events again; a DP rank is added to it. Without it a lost connection loses what was known of the cache.',
  ),
  residencyMaxWaitSecs: option(
    'Routing',
    '<secs>',
    secs.default(3_600),
    'rollout: how long a session may wait for room in an engine when the open ones want more context than the fleet can hold; then it is placed anyway. 0: nobody waits.',
  ),
  dataDir: option(
    'Routing',
    '<directory>',
    z.string().min(1).optional(),
    'Where policies keep what they must know after a restart: the workers of sessions, learned lengths. Without it they start anew.',
  ),
  retryMaxRetries: option(
    'Routing',
    '<count>',
    count.default(3),
    'Other workers to try when one fails before the first byte of its answer.',
  ),
  disableRetries: option('Routing', '', flag, 'Never try another worker.'),
  retryBufferBytes: option(
    'Routing',
    '<bytes>',
    count.default(1_073_741_824),
    'Request bodies kept for another try, of all requests together; beyond it bodies flow through and are sent once.',
  ),
  streamCoalesceMs: option(
    'Routing',
    '<ms>',
    count.max(10_000).default(0),
    'Read each event stream at most this often after its first events: less CPU per token, more delay. 0: at once.',
  ),

  healthCheckEndpoint: option('Health', '<path>', z.string().startsWith('/').default('/health'), 'Path to ask.'),
  healthCheckIntervalSecs: option('Health', '<secs>', secs.min(0.01).default(10), 'How often each worker is asked.'),
  healthCheckTimeoutSecs: option(
    'Health',
    '<secs>',
    secs.min(0.01).default(5),
    'How long an answer may take; SGLang needs more than 1 s, as its /health generates a token.',
  ),
  healthFailureThreshold: option(
    'Health',
    '<count>',
    count.min(1).default(3),
    'Failed checks in a row that put a worker into quarantine.',
  ),
  healthSuccessThreshold: option(
    'Health',
    '<count>',
    count.min(1).default(2),
    'Good checks in a row that let it out again.',
  ),
  disableHealthCheck: option('Health', '', flag, 'Take every worker for healthy.'),

  maxConcurrentRequests: option(
    'Limits',
    '<count>',
    count.default(0),
    'Requests under way at once, to the end of their answers; more get 429. 0: no bound.',
  ),
  maxPayloadSize: option('Limits', '<bytes>', count.default(268_435_456), 'Largest request body; more gets 413.'),
  requestTimeoutSecs: option(
    'Limits',
    '<secs>',
    secs.default(0),
    'Longest time from request to the end of its answer. 0: none, as rollouts run for hours.',
  ),

  logLevel: option(
    'Observability',
    '<level>',
    z.enum(['debug', 'info', 'warning', 'error', 'critical']).default('info'),
    'debug, info, warning, error or critical.',
  ),
  prometheusPort: option(
    'Observability',
    '<port>',
    port.default(29_000),
    'Port for GET /metrics, which the main port answers too; 0 picks a free one.',
  ),
  prometheusHost: option('Observability', '<address>', z.string().default('127.0.0.1'), 'Address for it.'),

  tlsCertPath: option('TLS', '<file>', file, 'Certificate (PEM) of this server; read again on SIGHUP.'),
  tlsKeyPath: option('TLS', '<file>', file, 'Its private key (PEM).'),
  caCertPath: option('TLS', '<file>', file, 'Authorities (PEM) to trust for https workers.'),
} as const;

export type OptionName = keyof typeof options;

const shape = Object.fromEntries(Object.entries(options).map(([name, spec]) => [name, spec.schema])) as {
  [Name in OptionName]: (typeof options)[Name]['schema'];
};

export const configSchema = z.strictObject(shape).superRefine((config, context) => {
  if ((config.tlsCertPath === undefined) !== (config.tlsKeyPath === undefined)) {
    context.addIssue({ code: 'custom', message: 'give both --tls-cert-path and --tls-key-path, or neither' });
  }
});

export type Config = z.output<typeof configSchema>;

/** `workerUrls` → `worker-urls` */
export const kebab = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
export const envName = (name: string): string => `TURNOUT_${kebab(name).replaceAll('-', '_').toUpperCase()}`;
