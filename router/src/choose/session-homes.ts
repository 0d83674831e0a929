import type { PlacedRequest } from '../placed-request.ts';
import type { Move, MoveReason, Why } from '../fleet/session-move.ts';
import type { Worker } from '../fleet/worker.ts';
import { LinkedList, type ListNode } from '../kit/linked-list.ts';
import type { MoveWhy } from './policy.ts';

/** Beyond this number the sessions that were first seen longest ago are forgotten. */
const MAX_SESSIONS = 300_000;
/** Moves that `GET /moves` lists. */
const MAX_MOVES = 1_000;
/** Idle sessions are looked for this many times within the time to live. */
const SWEEPS_PER_TTL = 16;
/** Sessions that one call looks at, because it blocks the event loop for that time. */
const SWEEP_SLICE = 10_000;

/** Where the requests of a session go. */
export interface SessionHome {
  worker: Worker;
  /** The group of its first request; ''. */
  readonly group: string;
  /** When it came there (monotonic ms). */
  sinceMs: number;
  /** When its last request was placed or ended (monotonic ms). */
  lastMs: number;
  /** Requests with a complete response. */
  turns: number;
  inFlight: number;
  /** Why its last request went where it went. */
  why: Why;
  moves: number;
  lastMove: Move | null;
}

interface KeptHome extends SessionHome {
  /** Its place in the order in which sessions were first seen. */
  readonly link: ListNode<string>;
}

/**
 * Which worker each session is at and how often it moved, for every policy: for logs, metrics and the API. One decision
 * depends on it: during a weight swap a session waits for no other worker than its own. It knows the sessions that a policy reads keys of, since the router started.
 */
export class SessionHomes {
  /** Total moves by reason. */
  readonly movesByReason = new Map<MoveReason, number>();
  /** The number of sessions at each worker, by its URL. */
  readonly byWorker = new Map<string, number>();
  readonly #homes = new Map<string, KeptHome>();
  /**
   * Those first seen longest ago first. (The first entry of a Map is slow to find after others before it were removed, and an iterator that
   * stays there keeps all entries that the Map had since.)
   */
  readonly #order = new LinkedList<string>();
  readonly #nowMs: () => number;
  readonly #ttlMs: () => number;
  readonly #maxSessions: number;
  /** A ring buffer: the next move goes to `#nextMove`. */
  readonly #moves: Move[] = [];
  #nextMove = 0;
  #sweptMs = 0;
  /** The sweep that goes on; null: none. */
  #sweep: IterableIterator<[string, SessionHome]> | null = null;

  constructor(nowMs: () => number, ttlMs: () => number, maxSessions = MAX_SESSIONS) {
    this.#nowMs = nowMs;
    this.#ttlMs = ttlMs;
    this.#maxSessions = maxSessions;
  }

  /** May be replaced. */
  onMoved(_x: PlacedRequest, _move: Move): void {}

  get size(): number {
    return this.#homes.size;
  }

  get(session: string): SessionHome | undefined {
    return this.#homes.get(session);
  }

  entries(): IterableIterator<[string, SessionHome]> {
    return this.#homes.entries();
  }

  *recentMoves(): Generator<Move> {
    for (let i = 1; i <= this.#moves.length; i++) {
      yield this.#moves.at((this.#nextMove - i + this.#moves.length) % this.#moves.length)!;
    }
  }

  /**
   * A request of a session (`x.session` is not '') was placed at `to`. Sets `x.why`.
   *
   * @returns the worker that the session left, to be passed to `moved`, or null
   */
  placed(x: PlacedRequest, to: Worker): Worker | null {
    const nowMs = this.#nowMs();
    const home = this.#homes.get(x.session);
    if (home === undefined) {
      x.why = x.tried.length > 0 ? 'retry' : 'new';
      this.#open(x, to, nowMs);
      return null;
    }
    const { worker } = home;
    const usual = worker === to ? 'home' : 'moved';
    x.why = x.tried.length > 0 ? 'retry' : usual;
    home.why = x.why;
    home.lastMs = nowMs;
    home.inFlight++;
    if (worker === to) return null;
    this.#count(worker, -1);
    this.#count(to, 1);
    home.worker = to;
    home.sinceMs = nowMs;
    return worker;
  }

  moved(x: PlacedRequest, from: Worker, to: Worker, { reason, savedSecs = 0 }: MoveWhy): void {
    const home = this.#homes.get(x.session)!;
    const move: Move = { session: x.session, from: from.url, to: to.url, reason, savedSecs, atMs: home.sinceMs };
    x.move = move;
    home.moves++;
    home.lastMove = move;
    this.movesByReason.set(reason, (this.movesByReason.get(reason) ?? 0) + 1);
    this.#moves[this.#nextMove] = move;
    this.#nextMove = (this.#nextMove + 1) % MAX_MOVES;
    this.onMoved(x, move);
  }

  /** The request has ended or failed. */
  released(x: PlacedRequest): void {
    const home = this.#homes.get(x.session);
    if (home === undefined) return;
    // The session may have been forgotten and opened again since then.
    if (home.inFlight > 0) home.inFlight--;
    home.lastMs = this.#nowMs();
    if (x.outcome === 'complete') home.turns++;
  }

  ended(session: string): void {
    const home = this.#homes.get(session);
    if (home === undefined) return;
    this.#count(home.worker, -1);
    this.#homes.delete(session);
    this.#order.remove(home.link);
  }

  /** Forgets sessions that were idle for too long: a part of them in each call. */
  sweep(nowMs: number): void {
    const ttlMs = this.#ttlMs();
    if (this.#sweep === null) {
      if (nowMs - this.#sweptMs < ttlMs / SWEEPS_PER_TTL) return;
      this.#sweptMs = nowMs;
      this.#sweep = this.#homes.entries();
    }
    for (let i = 0; i < SWEEP_SLICE; i++) {
      const { value } = this.#sweep.next() as { value: [string, SessionHome] | undefined };
      if (value === undefined) {
        this.#sweep = null;
        return;
      }
      const [session, { inFlight, lastMs }] = value;
      if (inFlight === 0 && nowMs - lastMs > ttlMs) this.ended(session);
    }
  }

  #open(x: PlacedRequest, worker: Worker, nowMs: number): void {
    const { session, group, why } = x;
    const times = { sinceMs: nowMs, lastMs: nowMs };
    const link = this.#order.push(session);
    const home = { worker, group, ...times, turns: 0, inFlight: 1, why, moves: 0, lastMove: null, link };
    this.#homes.set(session, home);
    this.#count(worker, 1);
    while (this.#homes.size > this.#maxSessions) this.ended(this.#order.first!.value);
  }

  #count({ url }: Worker, change: 1 | -1): void {
    const count = (this.byWorker.get(url) ?? 0) + change;
    if (count === 0) this.byWorker.delete(url);
    else this.byWorker.set(url, count);
  }
}
