import type { Logger } from '../../../observe/log.ts';
import type { CaptureStats } from '../../thread/capture/capture-calls.ts';

type Losses = Pick<CaptureStats, 'evictedLiveTurns' | 'lost'>;

const LOOK_MS = 1_000;
/** Minimum time between two log lines. */
const SAY_MS = 60_000;

/** Logs that turns of open sessions were evicted, and that some of them are lost. */
export class LossWatch {
  readonly #read: () => Promise<Losses>;
  readonly #maxBytes: number;
  readonly #log: Logger;
  readonly #timer: NodeJS.Timeout;
  #said: Losses = { evictedLiveTurns: 0, lost: 0 };
  #saidMs = -Infinity;

  constructor(read: () => Promise<Losses>, maxBytes: number, log: Logger, lookMs = LOOK_MS) {
    this.#read = read;
    this.#maxBytes = maxBytes;
    this.#log = log;
    // A thread that ended is logged elsewhere.
    this.#timer = setInterval(() => void this.#look().catch(() => {}), lookMs).unref();
  }

  async #look(): Promise<void> {
    const { evictedLiveTurns, lost } = await this.#read();
    const now = performance.now();
    const turns = evictedLiveTurns - this.#said.evictedLiveTurns;
    const lostTurns = lost - this.#said.lost;
    if (turns + lostTurns === 0 || now - this.#saidMs < SAY_MS) return;
    const message =
      lostTurns > 0
        ? 'turns of sessions in progress are lost: they were tokenised again, and have the drift "lost". Set --data-dir, or a larger --radix-max-bytes'
        : 'turns of sessions that are not over were evicted from the token trees, and are read from the store again: set a larger --radix-max-bytes';
    this.#log.warn({ evictedTurns: turns, lostTurns, maxBytes: this.#maxBytes }, message);
    this.#said = { evictedLiveTurns, lost };
    this.#saidMs = now;
  }

  close(): void {
    clearInterval(this.#timer);
  }
}
