import { setImmediate } from 'node:timers/promises';
import type { SessionName } from '../../shared/turn.ts';
import { type TurnIds, timeIn } from '../capture/turn-id.ts';
import { type DamagedTurn, type SessionHead, type TrajectoryStore, isOfStore, turnsOf } from './store.ts';

/** Never looked for more often than this, nor more seldom than that. */
const MIN_LOOK_MS = 1_000;
const MAX_LOOK_MS = 3_600_000;
/** So often within their age, so that none gets much older. */
const LOOKS = 24;
const SESSIONS_AT_ONCE = 100;

export interface ExpiryParts {
  readonly store: TrajectoryStore;
  readonly maxAgeMs: number;
  /** Of the turns that this process puts. */
  readonly ids: TurnIds;
  /** @returns false: it is in use and stays */
  readonly letGo: (session: string, tenant: string) => boolean;
  /** @returns how many turns it had */
  readonly remove: (name: SessionName) => Promise<number>;
}

/** An id of a moment: turns that were put later have larger ones, whatever the clock says. */
interface Mark {
  /** Of the monotonic clock. */
  readonly atMs: number;
  readonly id: string;
}

/** Removes sessions whose last turn began longer ago than they are to be kept; whole ones, as part of a trajectory is of no use. */
export class Expiry {
  readonly #parts: ExpiryParts;
  readonly #timer: NodeJS.Timeout;
  /** From the oldest to the newest: the first one is the last that is as old as sessions are kept, or that of the start. */
  readonly #marks: Mark[] = [];
  #isLooking = false;
  #isOver = false;
  /** Turns that were too old. */
  expired = 0;

  constructor(parts: ExpiryParts) {
    this.#parts = parts;
    const everyMs = Math.min(MAX_LOOK_MS, Math.max(MIN_LOOK_MS, parts.maxAgeMs / LOOKS));
    const look = (): void => {
      this.#mark(performance.now());
      if (this.#isLooking) return;
      this.#isLooking = true;
      // A store that is away is asked again the next time.
      void this.removeOld(nowMs())
        .catch(() => {})
        .finally(() => (this.#isLooking = false));
    };
    this.#timer = setInterval(look, everyMs);
    look();
  }

  #mark(atMs: number): void {
    const { ids, maxAgeMs } = this.#parts;
    this.#marks.push({ atMs, id: ids.next() });
    while (this.#marks[1] !== undefined && this.#marks[1].atMs <= atMs - maxAgeMs) this.#marks.shift();
  }

  /** Sessions are sorted by their beginning: after the first one that is young enough, none is removed. */
  async removeOld(now: number): Promise<void> {
    const { store, maxAgeMs } = this.#parts;
    const limitMs = now - maxAgeMs;
    let after: string | undefined;
    for (;;) {
      const heads = await store.sessions({ limit: SESSIONS_AT_ONCE, after });
      for (const head of heads) {
        after = head.firstTurn;
        // Lets other calls of the thread run in between.
        await setImmediate();
        if (this.#isOver) return;
        const firstMs = await this.#removeIfOld(head, limitMs).catch((error: unknown) => {
          // A session that can't be read, or removed, keeps no other one.
          if (isOfStore(error)) throw error;
          return null;
        });
        // What was recorded while the clock was ahead says nothing of the sessions after it.
        if (firstMs !== null && firstMs >= limitMs && firstMs <= now) return;
      }
      if (heads.length < SESSIONS_AT_ONCE) return;
    }
  }

  /** @returns when it began; null: it was removed in the meantime */
  async #removeIfOld({ session, tenant }: SessionHead, limitMs: number): Promise<number | null> {
    const { store, letGo, remove } = this.#parts;
    const damaged: DamagedTurn[] = [];
    const readable = await turnsOf(store, session, tenant, (turn) => damaged.push(turn));
    let firstMs = Infinity;
    let lastMs = -Infinity;
    let isNew = false;
    for (const { id, startedAtMs } of [...readable, ...damaged]) {
      firstMs = Math.min(firstMs, startedAtMs);
      lastMs = Math.max(lastMs, startedAtMs);
      isNew ||= this.#isNew(id);
    }
    if (lastMs === -Infinity) return null;
    if (lastMs < limitMs && !isNew && letGo(session, tenant)) this.expired += await remove({ session, tenant });
    return firstMs;
  }

  /** Whether this process put the turn since the first mark. Its clock may have been wrong then. */
  #isNew(id: string): boolean {
    return timeIn(id) > 0 && id > this.#marks[0]!.id;
  }

  close(): void {
    this.#isOver = true;
    clearInterval(this.#timer);
  }
}

/** The earlier one of the clock, and of the clock as it was at the start, counted on: with either one ahead, new sessions would be removed. */
const nowMs = (): number => Math.min(Date.now(), performance.timeOrigin + performance.now());
