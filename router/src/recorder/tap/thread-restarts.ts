import type { Logger } from '../../observe/log.ts';
import type { RecorderThread } from './recorder-thread.ts';

const FIRST_MS = 250;
const MAX_MS = 30_000;
/** A thread that ran this long was sound: its end is the first of a new series. */
const SOUND_MS = 60_000;

/** Starts the recorder thread again after it has ended by itself, with longer and longer delays. */
export class ThreadRestarts {
  /** The thread has ended, and its successor is not prepared yet. */
  isAway = false;
  /** How often it was started again. */
  count = 0;
  readonly #thread: RecorderThread;
  readonly #log: Logger;
  readonly #steps: (() => Promise<unknown>)[] = [];
  #waitMs = FIRST_MS;
  #startedMs = performance.now();
  #timer: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(thread: RecorderThread, log: Logger) {
    this.#thread = thread;
    this.#log = log;
  }

  /** Runs what the thread needs before it can work: now, and each time that it is started again. */
  async prepare(step: () => Promise<unknown>): Promise<void> {
    await step();
    this.#steps.push(step);
  }

  /** The thread has ended. */
  died(error: Error): void {
    this.isAway = true;
    if (this.#isOver) return;
    if (performance.now() - this.#startedMs >= SOUND_MS) this.#waitMs = FIRST_MS;
    const waitMs = this.#waitMs;
    this.#waitMs = Math.min(MAX_MS, 2 * waitMs);
    this.#log.error({ error: error.message, startsInMs: waitMs }, 'the recorder thread ended: it is started again');
    this.#timer = setTimeout(() => void this.#start(), waitMs).unref();
  }

  close(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
  }

  async #start(): Promise<void> {
    this.#startedMs = performance.now();
    this.count++;
    this.#thread.isPreparing = true;
    try {
      this.#thread.restart();
    } catch (error) {
      this.died(error as Error);
      return;
    }
    try {
      // Without any step, too, it is known to work.
      await this.#thread.ask('storeState', null);
      for (const step of this.#steps) await step();
      this.#thread.isPreparing = false;
      this.isAway = false;
      this.#log.info('the recorder thread works again');
    } catch (error) {
      // Without effect if that is because it has ended again.
      await this.#thread.giveUp(error as Error);
    }
  }
}
