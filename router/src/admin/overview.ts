import type { Context, Hono } from 'hono';
import * as z from 'zod';
import { moveText, reasonText } from '../choose/reason-text.ts';
import type { SessionHome, SessionHomes } from '../choose/session-homes.ts';
import { boundedKey, groupOf, sessionOf } from '../classify/routing-keys.ts';
import { checkInput } from '../config/check-input.ts';
import type { Exchange } from '../exchange.ts';
import type { Move } from '../fleet/session-move.ts';
import type { FeedStats } from '../observe/trainer-feed.ts';
import { waitsOf } from '../observe/waits.ts';
import { phaseOf } from './request-phase.ts';

export interface OverviewContext {
  readonly requests: () => Iterable<Exchange>;
  readonly homes: SessionHomes;
  readonly sessionHeaders: () => readonly string[];
  /** null: the plugin `feed` is not loaded. */
  readonly feedStats: () => FeedStats | null;
}

/** JSON of so many rows is made within 10 ms. */
const MAX_ROWS = 10_000;
/** Later than every monotonic time in ms. */
const LATEST_MS = 2 ** 48;

const limit = z.coerce.number().int().min(0).max(MAX_ROWS).default(1_000);
const wanted = { session: z.string().transform(boundedKey).optional(), worker: z.string().optional(), limit };
const requestsQuery = z.strictObject({ ...wanted, phase: z.string().optional() });
const sessionsQuery = z.strictObject({ ...wanted, moved: z.enum(['1', 'true', 'yes']).optional() });

/** `GET /requests` and `GET /sessions`: for admins, because they list the requests of all clients. */
export function addOverviewRoutes(app: Hono, context: OverviewContext): void {
  app.get('/requests', (c) => {
    const { data, problem } = checkInput(requestsQuery, c.req.query());
    return problem === null ? c.json(listRequests(context, data)) : refuse(c, problem);
  });
  app.get('/sessions', (c) => {
    const { data, problem } = checkInput(sessionsQuery, c.req.query());
    return problem === null ? c.json(listSessions(context, data)) : refuse(c, problem);
  });
}

const refuse = (c: Context, problem: string): Response =>
  c.json({ error: `In the query: ${problem}`, code: 'bad_request' }, 400);

export function listRequests(context: OverviewContext, wish: z.output<typeof requestsQuery>) {
  const nowMs = performance.now();
  const headers = context.sessionHeaders();
  const phases: Record<string, number> = {};
  const found: Exchange[] = [];
  let total = 0;
  for (const x of context.requests()) {
    const phase = phaseOf(x);
    total++;
    phases[phase] = (phases[phase] ?? 0) + 1;
    if (wish.phase !== undefined && wish.phase !== phase) continue;
    if (wish.worker !== undefined && wish.worker !== x.worker?.url) continue;
    if (wish.session !== undefined && wish.session !== sessionOf(x, headers)) continue;
    found.push(x);
  }
  found.sort((a, b) => a.startMs - b.startMs);
  return {
    total,
    phases,
    waits: waitsOf(context.requests(), context.homes, headers, nowMs),
    feed: context.feedStats(),
    matching: found.length,
    requests: found.slice(0, wish.limit).map((x) => requestInFlight(x, headers, nowMs)),
  };
}

export const requestInFlight = (x: Exchange, sessionHeaders: readonly string[], nowMs: number) => ({
  id: x.head.requestId,
  session: sessionOf(x, sessionHeaders) || null,
  group: groupOf(x) || null,
  worker: x.worker?.url ?? null,
  phase: phaseOf(x),
  reason: x.waiting?.reason ?? reasonText(x),
  age_secs: secs(nowMs - x.startMs),
  waiting_secs: x.waiting === null ? null : secs(nowMs - x.waiting.sinceMs),
  last_byte_secs: x.firstByteMs === null ? null : secs(nowMs - x.lastByteMs!),
  bytes_sent: x.answerBytes,
  attempts: x.attempts,
  path: x.clientPath ?? x.path,
});

export function listSessions({ homes }: OverviewContext, wish: z.output<typeof sessionsQuery>) {
  const nowMs = performance.now();
  let found: [string, SessionHome][] = [];
  const one = wish.session === undefined ? undefined : homes.get(wish.session);
  if (wish.session === undefined) found = [...homes.entries()];
  else if (one !== undefined) found = [[wish.session, one]];
  if (wish.worker !== undefined) found = found.filter(([, { worker }]) => worker.url === wish.worker);
  if (wish.moved !== undefined) found = found.filter(([, { moves }]) => moves > 0);
  const matching = found.length;
  const moves: Move[] = [];
  for (const move of homes.recentMoves()) {
    if (moves.length >= wish.limit) break;
    if (wish.session === undefined || wish.session === move.session) moves.push(move);
  }
  return {
    total: homes.size,
    matching,
    by_worker: Object.fromEntries(homes.byWorker),
    moves_by_reason: Object.fromEntries(homes.movesByReason),
    sessions: newest(found, wish.limit).map(([session, place]) => ({
      session,
      worker: place.worker.url,
      since_secs: secs(nowMs - place.sinceMs),
      idle_secs: place.inFlight > 0 ? 0 : secs(nowMs - place.lastMs),
      turns: place.turns,
      in_flight: place.inFlight,
      reason: place.why === 'moved' && place.lastMove !== null ? `moved: ${moveText(place.lastMove)}` : place.why,
      moves: place.moves,
      last_move: place.lastMove === null ? null : describe(place.lastMove, nowMs),
    })),
    recent_moves: moves.map((move) => ({ session: move.session, ...describe(move, nowMs) })),
  };
}

/** Those that moved last, then those that had a request last. */
function newest(sessions: readonly [string, SessionHome][], count: number): readonly [string, SessionHome][] {
  if (count === 0) return [];
  const rankOf = ({ lastMove, lastMs }: SessionHome): number =>
    lastMove === null ? lastMs : LATEST_MS + lastMove.atMs;
  // To sort numbers takes a small part of the time that a comparison of sessions would block the event loop.
  const least =
    Float64Array.from(sessions, ([, home]) => rankOf(home))
      .sort()
      .at(-count) ?? -Infinity;
  const best = sessions.filter(([, home]) => rankOf(home) >= least);
  return best.sort(([, a], [, b]) => rankOf(b) - rankOf(a) || b.lastMs - a.lastMs).slice(0, count);
}

const describe = (move: Move, nowMs: number) => ({
  from: move.from,
  to: move.to,
  reason: moveText(move),
  ago_secs: secs(nowMs - move.atMs),
});

/** The coarse clock may be a tick behind or ahead. */
const secs = (ms: number): number => Math.max(0, Math.round(ms / 100) / 10);
