import { setTimeout as delay } from 'node:timers/promises';
import { ConfigError } from '../config/load.ts';
import { type RequestRow, type SessionList, type Snapshot, type WorkerRow, renderTop } from './render-top.ts';

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
const TIMEOUT_MS = 10_000;

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
    // Cursor to the top, then clear to the end, without flicker.
    screen.write(isLive ? `\x1b[H\x1b[J${text}` : text);
    if (flags.once === true) return;
    if (!isLive) screen.write('\n');
    await delay(intervalMs);
  }
}

/** The rows per list that fit the terminal. */
const rowsOf = ({ rows = 40 }: Screen): number => Math.max(3, Math.floor((rows - 12) / 3));

async function look(url: string, flags: TopFlags): Promise<Snapshot> {
  const query = flags.session === undefined ? '' : `?session=${encodeURIComponent(flags.session)}`;
  const get = <T>(path: string): Promise<T> => ask<T>(url, path, flags.apiKey);
  const [requests, sessions, { workers }] = await Promise.all([
    get<{ total: number; phases: Record<string, number>; requests: RequestRow[] }>(`/requests${query}`),
    get<SessionList>(`/sessions${query === '' ? '?limit=10000' : query}`),
    get<{ workers: WorkerRow[] }>('/workers'),
  ]);
  return { url, requests, sessions, workers };
}

async function ask<T>(url: string, path: string, apiKey: string | undefined): Promise<T> {
  const headers: Record<string, string> = apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` };
  let response: Response;
  try {
    response = await fetch(new URL(path, url), { headers, signal: AbortSignal.timeout(TIMEOUT_MS) });
  } catch (error) {
    const { cause, message } = error as Error & { cause?: { code?: string; message?: string } };
    throw new ConfigError(`${url} does not answer: ${cause?.code || cause?.message || message}`);
  }
  if (response.ok) return (await response.json()) as T;
  const keyHint = response.status === 401 || response.status === 403 ? ' Give an admin key with --api-key.' : '';
  const hint = response.status === 404 ? ' Is this a turnout router?' : keyHint;
  throw new ConfigError(`${url}${path} answered ${response.status}.${hint}`);
}
