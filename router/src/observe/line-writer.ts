import { cameWithin } from '../kit/came-within.ts';

export interface LineTarget {
  write(text: string): Promise<void>;
  /** For the last lines of a process. */
  writeSync(text: string): void;
  close?(): Promise<void>;
}

/** Characters that may wait to be written; further lines are dropped. */
const MAX_WAITING_CHARS = 1_048_576;
/** A write that takes longer is taken for one that never ends, to a pipe without a reader. */
const STUCK_MS = 1_000;

/**
 * Writes lines in the background, several at a time. `write` never waits and never fails: with a full disk or a pipe without a reader,
 * lines are dropped and counted. Decision 0010 says why this is not pino's own destination.
 */
export class LineWriter {
  droppedLines = 0;
  readonly #target: LineTarget;
  readonly #onFailed: (error: Error) => void;
  #waiting: string[] = [];
  #waitingChars = 0;
  #writing: Promise<void> | null = null;
  #writingSinceMs = 0;
  #isFailing = false;

  /** @param onFailed called when writing begins to fail */
  constructor(target: LineTarget, onFailed: (error: Error) => void) {
    this.#target = target;
    this.#onFailed = onFailed;
  }

  write(line: string): void {
    if (this.#waitingChars + line.length > MAX_WAITING_CHARS) {
      this.droppedLines++;
      return;
    }
    this.#waiting.push(line);
    this.#waitingChars += line.length;
    this.#writing ??= this.#writeAll();
  }

  /** Resolves when all lines are written, or after `ms`. */
  async flush(ms: number): Promise<void> {
    if (this.#writing !== null) await cameWithin(ms, this.#writing);
  }

  /** Writes the remaining lines, when the process ends. */
  flushSync(): void {
    if (this.#writing !== null && performance.now() - this.#writingSinceMs > STUCK_MS) return;
    try {
      this.#target.writeSync(this.#take().join(''));
    } catch {
      // There is no other output for the error.
    }
  }

  async close(ms: number): Promise<void> {
    await this.flush(ms);
    this.flushSync();
    // Closing would wait for a write that never ends.
    if (this.#writing === null) await this.#target.close?.();
  }

  async #writeAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      const lines = this.#take();
      this.#writingSinceMs = performance.now();
      try {
        await this.#target.write(lines.join(''));
        this.#isFailing = false;
      } catch (error) {
        this.droppedLines += lines.length;
        const isNews = !this.#isFailing;
        this.#isFailing = true;
        if (isNews) this.#onFailed(error as Error);
      }
    }
    this.#writing = null;
  }

  #take(): string[] {
    const lines = this.#waiting;
    this.#waiting = [];
    this.#waitingChars = 0;
    return lines;
  }
}
