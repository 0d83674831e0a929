import type { Context, Hono } from 'hono';
import { boundedKey, sessionOf } from '../classify/routing-keys.ts';
import type { Candidate, Exchange, Failure } from '../exchange.ts';
import type { ExchangeRow } from '../observe/exchange-rows.ts';
import type { RecentExchanges } from '../observe/recent-exchanges.ts';
import { type OverviewContext, requestInFlight } from './overview.ts';
import { heldForText, reasonText, waitText } from '../choose/reason-text.ts';

export interface ExplainContext extends OverviewContext {
  /** null: no exchanges are kept. */
  readonly recent: RecentExchanges | null;
}

/** The response of `GET /explain?id=ID`. */
export interface Explanation {
  readonly id: string;
  /** The session with this id; null: none is known. */
  readonly home: {
    readonly worker: string;
    readonly turns: number;
    readonly moves: number;
    readonly in_flight: number;
  } | null;
  /** Finished exchanges that are kept: their number, and the time of the oldest (Unix ms). */
  readonly record: { readonly exchanges: number; readonly since: number | null };
  /** The number of finished exchanges of the id; `exchanges` has the last ones. */
  readonly matching: number;
  readonly exchanges: readonly (ExchangeRow & Told)[];
  readonly in_flight: readonly (ReturnType<typeof requestInFlight> &
    Told & { readonly candidates: readonly Candidate[] | null })[];
}

interface Told {
  readonly story: readonly string[];
}

const MAX_TURNS = 1_000;

/**
 * `GET /explain?id=ID` and `GET /explain/{id}`: the requests of a session, or one request, with the reason of each decision. Ids that lead
 * out of the path (dot segments at their beginning) need the query.
 */
export function addExplain(app: Hono, { recent, requests, homes, sessionHeaders }: ExplainContext): void {
  const known = (id: string) => {
    const headers = sessionHeaders();
    const finished = recent?.of(id) ?? [];
    const inFlight = [...requests()].filter((x) => x.head.requestId === id || sessionOf(x, headers) === id);
    const home = homes.get(id);
    return finished.length + inFlight.length === 0 && home === undefined
      ? null
      : { id, headers, finished, inFlight, home };
  };
  const explain = async (c: Context, asked: string): Promise<Response> => {
    const nowMs = performance.now();
    const found = known(boundedKey(asked));
    if (found === null) return c.json({ error: notFound(asked, recent), code: 'not_found' }, 404);
    const { id, headers, finished, inFlight, home } = found;
    return c.json({
      id,
      home:
        home === undefined
          ? null
          : { worker: home.worker.url, turns: home.turns, moves: home.moves, in_flight: home.inFlight },
      record: recordOf(recent),
      matching: finished.length,
      exchanges: finished.slice(-MAX_TURNS).map((row) => ({ ...row, story: storyOf(row) })),
      in_flight: inFlight
        .toSorted((a, b) => a.startMs - b.startMs)
        .map((x) => {
          const row = requestInFlight(x, headers, nowMs);
          return { ...row, candidates: x.candidates, story: storyInFlight(x, row) };
        }),
    } satisfies Explanation);
  };
  app.get('/explain', async (c) => {
    const id = c.req.query('id') ?? '';
    const error = 'The query names no session and no request: GET /explain?id=ID';
    return id === '' ? c.json({ error, code: 'bad_request' }, 400) : explain(c, id);
  });
  app.get('/explain/:id{.+}', (c) => explain(c, c.req.param('id')));
}

const recordOf = (recent: RecentExchanges | null) => ({
  exchanges: recent?.size ?? 0,
  since: recent?.oldest?.at ?? null,
});

function notFound(id: string, recent: RecentExchanges | null): string {
  const beginning = `No session or request '${id}' is in flight`;
  if (recent === null) return `${beginning}, and finished requests are not kept: --explain-buffer-bytes is 0.`;
  const { oldest, size } = recent;
  if (oldest === null) return `${beginning}, and no request has finished since the router started.`;
  const since = new Date(oldest.at).toISOString();
  return `${beginning} or among the last ${size} finished requests, which reach back to ${since}.`;
}

const failureTexts: Readonly<Record<Failure, string>> = {
  connect: 'no connection could be opened',
  stale: 'the engine had closed the idle connection',
  reset: 'the connection broke before the response began',
  cut_head: 'the connection broke inside the head of the response',
  bad_answer: 'the response was not valid HTTP',
  status: 'the engine responded with an error status',
  first_byte_timeout: 'no response began in time (--first-byte-timeout-secs)',
  hung: 'the engine hung before the response began',
  cut: 'the response was truncated, and another worker continued it',
  cut_hung: 'the engine hung during the response, and another worker continued it',
  aborted: 'the engine aborted the generation for a weight swap, and it was continued',
  no_handover: 'the prefill engine returned nothing that a decode engine can continue',
};

function storyOf(row: ExchangeRow): string[] {
  const { worker, error, detail } = row;
  return [
    ...(row.queued_ms > 0 ? [`It was queued for ${secs(row.queued_ms)} before it was admitted.`] : []),
    ...(row.held_for === null
      ? []
      : [`It was held for ${secs(row.held_ms)}: it waited for ${heldForText(row.held_for)}.`]),
    ...failuresOf(row.failures),
    ...(worker === null || row.reason === null ? [] : [choiceOf(worker, row.reason, row.from, row)]),
    ...endOf(row),
    ...(error === null ? [] : [`The router's error is ${error}: ${detail}`]),
  ];
}

function storyInFlight(x: Exchange, row: ReturnType<typeof requestInFlight>): string[] {
  const { worker, waiting_secs: waited, last_byte_secs: silent } = row;
  const at = worker ?? 'its worker';
  const waitsFor = x.waiting === null ? '' : waitText(x.waiting);
  const now: Readonly<Record<typeof row.phase, string>> = {
    receiving: 'It waits for the rest of its body, a plugin, or the delay before a retry.',
    queued: `It has been queued for ${waited} s: it waits for ${waitsFor}.`,
    held: `It has been held for ${waited} s: it waits for ${waitsFor}.`,
    waiting_for_first_byte: `It waits for the first byte of the response of ${at}.`,
    streaming: `It receives the response of ${at}; the last byte came ${silent} s ago.`,
  };
  return [
    ...failuresOf(x.allFailures.map((failed) => ({ worker: failed.worker.url, failure: failed.failure }))),
    ...(worker === null || x.waiting !== null
      ? []
      : [choiceOf(worker, reasonText(x), x.move?.from ?? null, { policy: null, session: row.session })]),
    now[row.phase],
  ];
}

const failuresOf = (failures: ExchangeRow['failures']): string[] =>
  failures.map(({ worker, failure }, i) => `Attempt ${i + 1} failed at ${worker}: ${failureTexts[failure]}.`);

/** @param reason as `reasonText` */
function choiceOf(
  worker: string,
  reason: string,
  from: string | null,
  { policy, session }: Pick<ExchangeRow, 'policy' | 'session'>,
): string {
  const chose = `${policy === null ? 'the policy' : policy} chose ${worker}`;
  if (reason === 'home') return `It stayed at ${worker}, where the session was.`;
  if (reason === 'new') return `It is the first request of its session: ${chose}.`;
  if (reason === 'retry') return `After that, ${chose}.`;
  if (reason === 'target') return `Its client named the worker ${worker} (x-turnout-worker).`;
  if (reason.startsWith('moved: ')) {
    return `Its session moved from ${from} to ${worker}. The reason: ${reason.slice('moved: '.length)}.`;
  }
  return session === null ? `It has no session: ${chose}.` : `It was placed without its session key: ${chose}.`;
}

function endOf({ outcome, status, ms, first_byte_ms: firstByteMs, response_bytes: bytes }: ExchangeRow): string[] {
  const times = `${secs(ms)}${firstByteMs === null ? '' : `, the first byte after ${secs(firstByteMs)}`}`;
  if (outcome === 'complete') return [`The response was complete after ${times}, with status ${status}.`];
  if (outcome === 'cut') return [`The response was truncated after ${times}, with ${bytes} bytes of its body.`];
  if (outcome === 'client_left') return [`Its client left after ${times}.`];
  return [`The router refused it after ${secs(ms)}, with status ${status}.`];
}

const secs = (ms: number): string =>
  ms < 1000 ? `${Number(ms.toPrecision(2))} ms` : `${(ms / 1000).toPrecision(3)} s`;
