/** Where lines are written. */
export interface LineTarget {
  /** Writes all of it. */
  write(text: string): Promise<void>;
  /** For the last lines of a process. */
  writeSync(text: string): void;
  close?(): Promise<void>;
}

/** Lines that may wait for their target, in characters; what comes while so much waits is dropped. */
const MAX_WAITING_CHARS = 1_048_576;
/** A write that takes longer will not end: the other side of a pipe doesn't read. */
const STUCK_MS = 1_000;

/**
 * Writes lines in the background, several at a time. `write` never waits and never fails: a full disk or a pipe without a reader costs
 * lines, which are counted, and nothing else. Decision 0010 says why this is not pino's own destination.
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

  /** @param onFailed called once for each time that writing begins to fail */
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

  /** Resolves when nothing waits, or `ms` are over. */
  async flush(ms: number): Promise<void> {
    if (this.#writing === null) return;
    let timer: NodeJS.Timeout | undefined;
    const enough = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, ms);
    });
    await Promise.race([this.#writing, enough]);
    clearTimeout(timer);
  }

  /** What still waits, at the end of the process. */
  flushSync(): void {
    if (this.#writing !== null && performance.now() - this.#writingSinceMs > STUCK_MS) return;
    try {
      this.#target.writeSync(this.#take().join(''));
    } catch {
      // There is no other output for the error.
    }
  }

  /** Writes what waits, for at most `ms`, and closes its target. */
  async close(ms: number): Promise<void> {
    await this.flush(ms);
    this.flushSync();
    // A write that hangs would hold this up too.
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
