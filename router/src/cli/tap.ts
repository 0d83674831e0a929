import * as z from 'zod';
import { EventSplitter, dataOf, joined } from '../kit/sse.ts';
import type { ExchangeRow } from '../observe/exchange-rows.ts';
import { followRouter, readRouters } from './ask-router.ts';
import { Columns, printable } from './columns.ts';

const filters = ['session', 'group', 'worker', 'path', 'status', 'slow'] as const;

export interface TapFlags extends Readonly<Partial<Record<(typeof filters)[number] | 'apiKey', string>>> {
  readonly json?: boolean;
}

const lostShape = z.looseObject({ lost: z.number() });
const text = z.string().nullable();
const rowShape = z.looseObject({
  at: z.number().max(1e15),
  ms: z.number().max(1e15),
  status: z.number(),
  outcome: z.string(),
  path: z.string(),
  session: text,
  worker: text,
  reason: text,
  error: text,
  held_for: text,
  failures: z.array(z.looseObject({ worker: z.string() })),
});

/** Prints the exchanges of a running router as they end, until the router or the user stops. */
export async function tap(url: string, flags: TapFlags, write: (line: string) => void): Promise<void> {
  const query = new URLSearchParams();
  for (const name of filters) if (flags[name] !== undefined) query.set(name, flags[name]);
  const columns = new Columns(HEAD, TYPICAL);
  const stream = await followRouter(url, `/tap?${query.toString()}`, flags.apiKey);
  if (flags.json !== true) write(columns.line(HEAD));
  const events = new EventSplitter(joined);
  const what = `${url}/tap sent an event`;
  for await (const bytes of stream) {
    for (const event of events.push(Buffer.from(bytes))) {
      const [isLost, data] = readEvent(event);
      if (data === null) continue;
      if (flags.json === true) write(data);
      else if (isLost) {
        const { lost } = readRouters(lostShape, data, what) as { lost: number };
        write(`… ${lost} more: they end faster than they are shown`);
      } else write(columns.line(cellsOf(readRouters(rowShape, data, what) as ExchangeRow)));
    }
  }
}

const LOST = Buffer.from('event: lost\n');

/** null: a comment. */
function readEvent(event: Buffer): [isLost: boolean, data: string | null] {
  const isLost = event.subarray(0, LOST.length).equals(LOST);
  const [start, end] = dataOf(event);
  return [isLost, start < 0 ? null : event.toString('utf8', start, end).trim()];
}

/** The last column may be long. */
const MAX_NOTES = 300;
const HEAD = ['TIME', 'STATUS', 'TOOK', 'TTFT', 'TOKENS', 'SESSION', 'WORKER', 'REASON', 'PATH', 'NOTES'];

/** So that the columns of the first lines seldom grow. */
const TYPICAL = ['00:00:00.000', '200', '00.00s', '00.00s', '0000(0000)+000', 'session-00', '127.0.0.1:00000', 'home'];

function cellsOf(row: ExchangeRow): string[] {
  const firstMs = row.first_token_ms ?? row.first_byte_ms;
  return [
    new Date(row.at + row.ms).toISOString().slice(11, 23),
    row.status === 0 ? '-' : String(row.status),
    secs(row.ms),
    firstMs === null ? '-' : secs(firstMs),
    tokensOf(row),
    row.session ?? '-',
    row.worker?.replace(/^https?:\/\//, '') ?? '-',
    row.reason ?? '-',
    row.path,
  ]
    .map((cell) => printable(cell))
    .concat(printable(notesOf(row), MAX_NOTES));
}

/** `812(790)+64`: of the prompt, of them in the cache, of the response. */
function tokensOf({ prompt_tokens: prompt, cached_tokens: cached, output_tokens: output }: ExchangeRow): string {
  if (output === null) return '-';
  return `${prompt ?? '?'}${cached === null ? '' : `(${cached})`}+${output}`;
}

function notesOf(row: ExchangeRow): string {
  return [
    ...(row.outcome === 'complete' ? [] : [row.outcome === 'cut' ? 'truncated' : row.outcome.replace('_', ' ')]),
    ...(row.error === null ? [] : [row.error]),
    ...row.failures.map(({ worker, failure }) => `${failure} at ${worker.replace(/^https?:\/\//, '')}`),
    ...(row.queued_ms >= 1 ? [`queued ${secs(row.queued_ms)}`] : []),
    ...(row.held_for === null ? [] : [`held ${secs(row.held_ms)}: ${row.held_for}`]),
  ].join(', ');
}

const secs = (ms: number): string =>
  ms < 1000 ? `${Math.round(ms)}ms` : `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)}s`;
