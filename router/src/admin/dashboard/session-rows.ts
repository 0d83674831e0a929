import { setImmediate as nextTurn } from 'node:timers/promises';
import { moveText, waitText } from '../../choose/reason-text.ts';
import type { SessionHome, SessionHomes } from '../../choose/session-homes.ts';
import { groupOf, sessionOf } from '../../classify/routing-keys.ts';
import type { Exchange, Waiting } from '../../exchange.ts';
import { type Phase, phaseOf } from '../request-phase.ts';
import type { SessionRow } from './protocol.ts';
import type { RowTable } from './row-table.ts';

export interface SessionSources {
  readonly homes: SessionHomes;
  readonly requests: () => Iterable<Exchange>;
  readonly sessionHeaders: () => readonly string[];
}

/** Sessions with rows: of more, those with a request in flight, and of the others those that changed last. */
const MAX_SESSIONS = 10_000;
/** Sessions that are looked at in one turn of the event loop. */
const SLICE = 2_000;
/** The times in `SessionHome` are those of the coarse clock, which may be this much behind. */
const CLOCK_MS = 500;

interface InFlight {
  readonly phase: Phase;
  /** null: it does not wait for admission or a worker. */
  readonly wait: (Waiting & { readonly group: string }) | null;
}

/** Keeps the rows of sessions. Only those that may have changed since the last time are written again. */
export class SessionRows {
  /** Requests in flight, by what they wait for. */
  phases: Partial<Record<Phase, number>> = {};
  /** Sessions without a row. */
  unlisted = 0;
  readonly #sources: SessionSources;
  #inFlight = new Map<string, InFlight>();
  #lastMs = -Infinity;

  constructor(sources: SessionSources) {
    this.#sources = sources;
  }

  async put(table: RowTable, tick: number): Promise<void> {
    const { homes } = this.#sources;
    const nowMs = performance.now();
    const before = this.#inFlight;
    this.#look();
    const changedMs = this.#lastMs - CLOCK_MS;
    this.#lastMs = nowMs;
    let surplus = table.size === 0 ? homes.size - MAX_SESSIONS : 0;
    let seen = 0;
    let unlisted = 0;
    for (const [session, home] of homes.entries()) {
      if (++seen % SLICE === 0) await nextTurn();
      const now = this.#inFlight.get(session);
      if (surplus > 0 && now === undefined) {
        surplus--;
        unlisted++;
        continue;
      }
      const was = before.get(session);
      const waitsAsBefore = now?.wait?.sinceMs === was?.wait?.sinceMs && now?.wait?.reason === was?.wait?.reason;
      const isSame = home.lastMs < changedMs && now?.phase === was?.phase && waitsAsBefore;
      if (isSame && table.has(session)) continue;
      if (isSame && table.size >= MAX_SESSIONS) {
        unlisted++;
        continue;
      }
      table.put(session, JSON.stringify(rowOf(session, home, now)), tick);
    }
    for (const [session, now] of this.#inFlight) {
      if (now.wait !== null && homes.get(session) === undefined)
        table.put(session, JSON.stringify(rowOf(session, null, now)), tick);
    }
    for (const session of table.keys()) {
      if (++seen % SLICE === 0) await nextTurn();
      const isKnown = homes.get(session) !== undefined || (this.#inFlight.get(session)?.wait ?? null) !== null;
      if (!isKnown) table.drop(session, tick);
    }
    let excess = table.size - MAX_SESSIONS;
    for (const session of table.keys()) {
      if (excess <= 0) break;
      if (this.#inFlight.has(session)) continue;
      table.drop(session, tick);
      excess--;
      unlisted++;
    }
    this.unlisted = unlisted;
  }

  #look(): void {
    const headers = this.#sources.sessionHeaders();
    this.phases = {};
    this.#inFlight = new Map();
    for (const x of this.#sources.requests()) {
      const phase = phaseOf(x);
      this.phases[phase] = (this.phases[phase] ?? 0) + 1;
      const session = sessionOf(x, headers);
      // The oldest one comes first.
      if (session === '' || this.#inFlight.has(session)) continue;
      this.#inFlight.set(session, { phase, wait: x.waiting && { ...x.waiting, group: groupOf(x) } });
    }
  }
}

const unixMs = (ms: number): number => Math.round(performance.timeOrigin + ms);

/** @param home null: no request of the session has had a worker */
function rowOf(session: string, home: SessionHome | null, now: InFlight | undefined): SessionRow {
  const move = home?.lastMove ?? null;
  return {
    session,
    group: home?.group ?? now?.wait?.group ?? '',
    worker: home?.worker.url ?? null,
    since: home && unixMs(home.sinceMs),
    last: home && unixMs(home.lastMs),
    turns: home?.turns ?? 0,
    in_flight: home?.inFlight ?? 0,
    why: home?.why ?? null,
    moves: home?.moves ?? 0,
    move: move === null ? null : { from: move.from, reason: move.reason, text: moveText(move), at: unixMs(move.atMs) },
    phase: now?.phase ?? null,
    waits_for: now?.wait?.reason ?? null,
    waits_text: now?.wait == null ? null : waitText(now.wait),
    waits_since: now?.wait == null ? null : unixMs(now.wait.sinceMs),
  };
}
