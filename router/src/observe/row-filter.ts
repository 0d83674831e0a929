import * as z from 'zod';
import { boundedKey } from '../classify/routing-keys.ts';
import type { ExchangeRow } from './exchange-rows.ts';

const DURATION = /^(\d+(?:\.\d+)?)(ms|s|m)?$/;
const unitMs = { ms: 1, s: 1000, m: 60_000 };

/** The filter of rows, from a query or from flags; all conditions must match. */
export const rowQuery = z.strictObject({
  session: z.string().transform(boundedKey).optional(),
  group: z.string().transform(boundedKey).optional(),
  worker: z.string().optional(),
  path: z.string().optional(),
  status: z
    .string()
    .regex(
      /^([1-5]xx|\d{3})(,([1-5]xx|\d{3}))*$/,
      'must be a status such as 429, a class such as 5xx, or a list of them',
    )
    .optional(),
  slow: z.string().regex(DURATION, 'must be a duration such as 2s or 500ms').optional(),
});

export type RowQuery = z.infer<typeof rowQuery>;

/** `session`, `group` and `status` must be equal, `worker` a part of the URL, `path` a prefix. */
export function rowFilter({ session, group, worker, path, status, slow }: RowQuery): (row: ExchangeRow) => boolean {
  const wanted = status?.split(',');
  const slowMs = slow === undefined ? 0 : durationMs(slow);
  return (row) =>
    (session === undefined || row.session === session) &&
    (group === undefined || row.group === group) &&
    (worker === undefined || (row.worker ?? '').includes(worker)) &&
    (path === undefined || row.path.startsWith(path)) &&
    (wanted === undefined || wanted.some((one) => isOfStatus(row.status, one))) &&
    row.ms >= slowMs;
}

const isOfStatus = (status: number, wanted: string): boolean =>
  wanted.endsWith('xx') ? Math.floor(status / 100) === Number(wanted[0]) : status === Number(wanted);

function durationMs(text: string): number {
  const [, count, unit = 's'] = DURATION.exec(text)!;
  return Number(count) * unitMs[unit as keyof typeof unitMs];
}
