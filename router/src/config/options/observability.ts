import { z } from 'zod';
import { count, flag, inGroup, list, port } from './option.ts';

const option = inGroup('Observability');

export const observabilityOptions = {
  logLevel: option(
    '<level>',
    z.enum(['debug', 'info', 'warning', 'error', 'critical']).default('info'),
    'debug, info, warning, error or critical.',
  ),
  prometheusPort: option(
    '<port>',
    port.default(29_000),
    'Port for GET /metrics, which the main port answers too; 0 picks a free one.',
  ),
  prometheusHost: option('<address>', z.string().default('127.0.0.1'), 'Address for it.'),

  requestIdHeaders: option(
    '<names...>',
    list,
    'Headers that carry the id of a request, in the order in which they are believed; x-request-id is always one.',
  ),
  logDir: option('<directory>', z.string().min(1).optional(), 'Write the log to files there too.'),
  logMaxBytes: option(
    '<bytes>',
    count.min(4_096).default(104_857_600),
    'A new log file is begun when one has this size.',
  ),
  logMaxFiles: option('<count>', count.min(1).default(8), 'So many log files are kept.'),
  accessLog: option('', flag, 'Write a line for every request.'),
} as const;
