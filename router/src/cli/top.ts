import { setTimeout as delay } from 'node:timers/promises';
import * as z from 'zod';
import { ConfigError } from '../config/load.ts';
import { askRouter } from './ask-router.ts';
import { type Snapshot, type WorkerRow, renderTop } from './render-top.ts';

export interface TopFlags {
  readonly apiKey?: string;
  readonly once?: boolean;
  readonly interval: string;
  readonly session?: string;
  readonly rows?: string;
}

/** The terminal or pipe. */
export interface Screen {
  readonly isTTY?: boolean;
  readonly rows?: number;
  readonly columns?: number;
  write(text: string): unknown;
}

const DEFAULT_ROWS = 20;

const counts = z.record(z.string(), z.number());
const rows = z.array(z.looseObject({}));
const requestsShape = z.looseObject({
  total: z.number(),
  phases: counts,
  waits: z.array(
    z.looseObject({
      phase: z.string(),
      reason: z.string(),
      waits_for: z.string(),
      oldest: z.looseObject({ id: z.string() }),
    }),
  ),
  feed: z.looseObject({ droppedGroups: counts }).nullish(),
  requests: rows,
});
const sessionsShape = z.looseObject({
  total: z.number(),
  by_worker: counts,
  moves_by_reason: counts,
  recent_moves: rows,
  sessions: rows,
});
const workersShape = z.looseObject({
  workers: z.array(
    z.looseObject({ url: z.string(), not_serving_because: z.array(z.string()), last_minute: z.looseObject({}) }),
  ),
});

/** Shows requests, sessions and workers of a running router until stopped. Rejects if the router does not answer. */
export async function top(url: string, flags: TopFlags, screen: Screen): Promise<void> {
  const intervalMs = Number(flags.interval) * 1000;
  if (!(intervalMs >= 100)) throw new ConfigError(`--interval ${flags.interval}: a number of seconds, 0.1 or more`);
  const rows = flags.rows === undefined ? undefined : Number(flags.rows);
  if (rows !== undefined && !(Number.isInteger(rows) && rows > 0))
    throw new ConfigError(`--rows ${flags.rows}: a number above 0`);
  const isLive = screen.isTTY === true && flags.once !== true;
  for (;;) {
    const text = renderTop(await look(url, flags), {
      rows: rows ?? (isLive ? rowsOf(screen) : DEFAULT_ROWS),
      columns: screen.columns ?? Infinity,
    });
    // Cursor to the top, then clear to the end, without flicker. More lines than the screen has would scroll the summary away.
    screen.write(isLive ? `\x1b[H\x1b[J${text.split('\n', (screen.rows ?? 40) - 1).join('\n')}\n` : text);
    if (flags.once === true) return;
    if (!isLive) screen.write('\n');
    await delay(intervalMs);
  }
}

/** The rows per list that fit the terminal. */
const rowsOf = ({ rows = 40 }: Screen): number => Math.max(3, Math.floor((rows - 12) / 3));

async function look(url: string, flags: TopFlags): Promise<Snapshot> {
  const query = flags.session === undefined ? '' : `?session=${encodeURIComponent(flags.session)}`;
  const get = <T>(shape: z.ZodType, path: string): Promise<T> => askRouter<T>(shape, url, path, flags.apiKey);
  const [requests, sessions, { workers }] = await Promise.all([
    get<Snapshot['requests']>(requestsShape, `/requests${query}`),
    get<Snapshot['sessions']>(sessionsShape, `/sessions${query === '' ? '?limit=10000' : query}`),
    get<{ workers: WorkerRow[] }>(workersShape, '/workers'),
  ]);
  return { url, requests, sessions, workers };
}
