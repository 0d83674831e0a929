import * as z from 'zod';
import { address, count, flag, headerName, inGroup, port, share } from './option.ts';

/** Headers that the router must not copy between requests and responses. */
const reserved =
  /^(host|connection|content-.*|transfer-encoding|te|trailer|upgrade|expect|cookie|set-cookie|.*authorization)$/;

/** In less there is no room for long paths and names. */
const MIN_EXPLAIN_BYTES = 65_536;

const option = inGroup('Observability');

export const observabilityOptions = {
  logLevel: option(
    '<level>',
    z
      .enum(['debug', 'info', 'warning', 'warn', 'error', 'critical'])
      .transform((level) => (level === 'warn' ? 'warning' : level))
      .default('info'),
    'debug, info, warning, error or critical.',
    { isCommon: true },
  ),
  logFormat: option(
    '<format>',
    z.enum(['text', 'json']).optional(),
    'text or json. Without it: text where the standard output is a terminal, else json; files of --log-dir are json.',
    { needsRestart: true },
  ),
  prometheusPort: option(
    '<port>',
    port.default(29_000),
    'Port of GET /metrics, /liveness and /readiness, which the main port serves, too; 0 picks a free one.',
    { needsRestart: true },
  ),
  prometheusHost: option('<address>', address.default('127.0.0.1'), 'Address of --prometheus-port.', {
    needsRestart: true,
  }),

  metricsCompat: option(
    '<router>',
    z.enum(['off', 'sglang', 'vllm']).default('off'),
    'Also serve metrics with the names and labels of sglang-router (smg_…) or vllm-router (vllm_router_…), so that their dashboards and alerts go on working. The commands of these routers set it.',
    { needsRestart: true },
  ),

  otlpTracesEndpoint: option(
    '<url>',
    z.url({ protocol: /^https?$/ }).optional(),
    'Send traces of requests to this OpenTelemetry collector (OTLP over HTTP), for example http://localhost:4318; /v1/traces is added to a URL without a path.',
    { needsRestart: true },
  ),
  traceSampleRatio: option(
    '<share>',
    share.default(1),
    'Fraction of the requests without a traceparent header that are traced; with that header its sampled flag decides.',
    { needsRestart: true },
  ),
  dashboard: option(
    '<switch>',
    z.enum(['on', 'off']).default('on'),
    'Serve the dashboard at /dashboard. What it shows needs an admin key, if keys are set.',
    { needsRestart: true },
  ),

  requestIdHeaders: option(
    '<names...>',
    z.array(headerName.refine((name) => !reserved.test(name), 'is about something else')).default([]),
    'Headers that carry the request id, highest priority first; x-request-id is always one of them.',
  ),
  logDir: option('<directory>', z.string().min(1).optional(), 'Also write the log to files in this folder.', {
    needsRestart: true,
  }),
  logMaxBytes: option('<bytes>', count.min(4_096).default(104_857_600), 'Size at which a new log file is started.', {
    needsRestart: true,
  }),
  logMaxFiles: option('<count>', count.min(1).default(8), 'Number of log files that are kept.', { needsRestart: true }),
  workerHeader: option(
    '',
    flag,
    'Add x-turnout-worker and x-turnout-reason to responses: the URL of the worker, and why it was chosen (new, home, moved: …, retry).',
  ),
  explainBufferBytes: option(
    '<bytes>',
    count
      .refine((bytes) => bytes === 0 || bytes >= MIN_EXPLAIN_BYTES, `must be 0 or at least ${MIN_EXPLAIN_BYTES}`)
      .default(33_554_432),
    'Memory for the last requests, with the candidates of each choice, that turnout explain shows, at least 65536; 0: no requests are kept.',
    { needsRestart: true },
  ),
  accessLog: option('', flag, 'Log every request to workers when it is complete.'),
} as const;
