import { z } from 'zod';

/** Names of the routing policies; `choose/policies.ts` has one for each. */
export const policyNames = ['least_inflight', 'consistent_hash', 'power_of_two', 'random', 'round_robin'] as const;
export type PolicyName = (typeof policyNames)[number];

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
    'Engines to route to, http://host:port each, separated by spaces or commas. More can be added while running.',
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
    z
      .string()
      .transform((name) => name.replaceAll('-', '_'))
      .pipe(z.enum(policyNames))
      .default('least_inflight'),
    `How a worker is chosen: ${policyNames.join(', ')}. consistent_hash keeps the requests of a session header on one worker.`,
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
