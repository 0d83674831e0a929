import type { Context, Hono } from 'hono';
import { boundedKey, sessionOf } from '../classify/routing-keys.ts';
import type { Candidate } from '../exchange.ts';
import type { ExchangeRow } from '../observe/exchange-rows.ts';
import type { RecentExchanges } from '../observe/recent-exchanges.ts';
import { type OverviewContext, requestInFlight } from './overview.ts';

export interface ExplainContext extends OverviewContext {
  /** null: none are kept. */
  readonly recent: RecentExchanges | null;
}

/** The response of `GET /explain?id=ID`. */
export interface Explanation {
  readonly id: string;
  /** Where the session of that name is; null: none is known. */
  readonly home: {
    readonly worker: string;
    readonly turns: number;
    readonly moves: number;
    readonly in_flight: number;
  } | null;
  /** The finished exchanges that the router keeps: how many, and since when (Unix ms). */
  readonly record: { readonly exchanges: number; readonly since: number | null };
  /** How many finished exchanges there are; those listed are the last ones. */
  readonly matching: number;
  readonly exchanges: readonly (ExchangeRow & Told)[];
  readonly in_flight: readonly (ReturnType<typeof requestInFlight> &
    Told & { readonly candidates: readonly Candidate[] | null })[];
}

/** What happened, in sentences. */
interface Told {
  readonly story: readonly string[];
}

/** Turns of a session that are shown, the last ones. */
const MAX_TURNS = 1_000;

/**
 * `GET /explain?id=ID` and `GET /explain/{id}`: what the router did with the requests of a session, or with one request, and why. The
 * normal form of a path has no empty and no dot segments, so names with those are found by the query only.
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
    const { storyInFlight, storyOf } = await import('./explain-text.ts');
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
  /** Unix ms. */
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
