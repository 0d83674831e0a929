import type { ReadPace } from './read-pace.ts';

/** The first reads of a stream, and those after a finish reason, are never delayed: the first token and the end come as early as without a delay. */
const PROMPT_READS = 3;
/** With `auto`: after so many delayed reads of one chunk each, which would have come alone without a delay too, the next reads are not delayed. */
const MAX_SINGLE = 3;
const PROMPT_AFTER_SINGLE = 64;
/** After a read of so many bytes the next one is not delayed: a large event is on its way, and the kernel's buffer limits what a delay gathers. */
const LARGE_BYTES = 16_384;
const FINISH = Buffer.from('"finish_reason":');
const SPACE = 0x20;
const N = 0x6e;

/** The reads of one event stream (`--stream-coalesce-ms`). */
export class PacedReads {
  /** The next read is delayed now. */
  isDelayed = false;
  readonly #pace: ReadPace;
  readonly #resume: () => void;
  /** So many reads are not delayed. */
  #prompt = PROMPT_READS;
  #wasDelayed = false;
  /** Delayed reads of one chunk, in a row. */
  #single = 0;
  #chunks = 0;

  /** @param resume reads on */
  constructor(pace: ReadPace, resume: () => void) {
    this.#pace = pace;
    this.#resume = resume;
  }

  /**
   * `bytes[start, end)` were read.
   *
   * @param chunks of the whole response so far; -1: it has none
   * @returns true: nothing more is read until `resume` is called
   */
  delaysNext(bytes: Buffer, start: number, end: number, chunks: number): boolean {
    const pace = this.#pace;
    if (this.#prompt > 0) {
      this.#prompt--;
      this.#chunks = chunks;
      return false;
    }
    if (pace.delayMs === 0 || end - start >= LARGE_BYTES) return false;
    if (pace.isAuto && chunks >= 0 && this.#isSlow(chunks)) return false;
    if (isEnding(bytes, start, end)) {
      this.#prompt = PROMPT_READS;
      return false;
    }
    this.isDelayed = this.#wasDelayed = true;
    pace.resumeLater(this.#due);
    return true;
  }

  /** Of a stream that sends less often than it is read, a delayed read has one chunk and saves nothing. */
  #isSlow(chunks: number): boolean {
    const count = chunks - this.#chunks;
    this.#chunks = chunks;
    if (count > 1) this.#single = 0;
    else if (this.#wasDelayed && ++this.#single === MAX_SINGLE) {
      this.#single = 0;
      this.#prompt = PROMPT_AFTER_SINGLE;
      this.#wasDelayed = false;
      return true;
    }
    return false;
  }

  readonly #due = (): void => {
    this.isDelayed = false;
    this.#resume();
  };
}

/** The last event with the field has a finish reason: token counts and the end of the response follow at once. */
function isEnding(bytes: Buffer, start: number, end: number): boolean {
  if (end - start < FINISH.length) return false;
  const at = bytes.lastIndexOf(FINISH, end - FINISH.length);
  if (at < start) return false;
  const value = at + FINISH.length;
  return bytes[bytes[value] === SPACE ? value + 1 : value] !== N;
}
