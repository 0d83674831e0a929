import { setImmediate } from 'node:timers/promises';
import type { SessionName } from '../../shared/turn.ts';
import { type TrajectoryStore, turnsOf } from './store.ts';

/** Never looked for more often than this, nor more seldom than that. */
const MIN_LOOK_MS = 1_000;
const MAX_LOOK_MS = 3_600_000;
/** So often within their age, so that none gets much older. */
const LOOKS = 24;
const SESSIONS_AT_ONCE = 100;

export interface ExpiryParts {
  readonly store: TrajectoryStore;
  readonly maxAgeMs: number;
  /** @returns false: it is in use and stays */
  readonly letGo: (session: string, tenant: string) => boolean;
  /** @returns how many turns it had */
  readonly remove: (name: SessionName) => Promise<number>;
}

/** Removes sessions whose last turn began longer ago than they are to be kept; whole ones, as part of a trajectory is of no use. */
export class Expiry {
  readonly #parts: ExpiryParts;
  readonly #timer: NodeJS.Timeout;
  #isLooking = false;
  #isOver = false;
  /** Turns that were too old. */
  expired = 0;

  constructor(parts: ExpiryParts) {
    this.#parts = parts;
    const everyMs = Math.min(MAX_LOOK_MS, Math.max(MIN_LOOK_MS, parts.maxAgeMs / LOOKS));
    const look = (): void => {
      if (this.#isLooking) return;
      this.#isLooking = true;
      // A store that is away is asked again the next time.
      // Counted on from the clock as it was at the start: one that jumps ahead would have everything removed.
      void this.removeBefore(performance.timeOrigin + performance.now() - parts.maxAgeMs)
        .catch(() => {})
        .finally(() => (this.#isLooking = false));
    };
    this.#timer = setInterval(look, everyMs);
    look();
  }

  /** Sessions are sorted by their beginning: after the first one that is young enough, none is removed. */
  async removeBefore(limitMs: number): Promise<void> {
    const { store, letGo, remove } = this.#parts;
    let after: string | undefined;
    for (;;) {
      const heads = await store.sessions({ limit: SESSIONS_AT_ONCE, after });
      for (const { session, tenant, firstTurn } of heads) {
        after = firstTurn;
        // Lets other calls of the thread run in between.
        await setImmediate();
        if (this.#isOver) return;
        let firstMs = Infinity;
        let lastMs = -Infinity;
        for (const { startedAtMs } of await turnsOf(store, session, tenant)) {
          firstMs = Math.min(firstMs, startedAtMs);
          lastMs = Math.max(lastMs, startedAtMs);
        }
        // It was removed in the meantime.
        if (lastMs === -Infinity) continue;
        if (firstMs >= limitMs) return;
        if (lastMs < limitMs && letGo(session, tenant)) this.expired += await remove({ session, tenant });
      }
      if (heads.length < SESSIONS_AT_ONCE) return;
    }
  }

  close(): void {
    this.#isOver = true;
    clearInterval(this.#timer);
  }
}
