const LF = 0x0a;
const COLON = 0x3a;
const SPACE = 0x20;
/** The first byte of `null`. */
const N = 0x6e;

const KEY = Buffer.from('"finish_reason"');
/** What ends a stream stands at its end, on a line of its own: the text of an answer, which is JSON, has no line feeds. */
const DONE = /(^|\n)data: ?\[DONE\]\s*$/;
const DONE_BYTES = 32;
const NOTHING = Buffer.alloc(0);

/**
 * Finds the events of a stream that end a choice: those with a `finish_reason` that is not null, as SGLang and OpenAI's API have it. Nothing is
 * parsed: a key within a string has its quotes escaped, so it is found by plain search. Lines end in LF.
 */
export class FinishScan {
  /** Complete events that ended a choice. */
  finished = 0;
  /** The line of such an event is complete, and the empty line after it has not come. */
  isEnding = false;
  /** What ends the stream has come. */
  isDone = false;
  /** The event that is not complete yet ends a choice. */
  #isFinish = false;
  /** The end of what came before: a key may have begun there. */
  #tail: Buffer = NOTHING;

  push(bytes: Buffer, start: number, end: number): void {
    let part = bytes.subarray(start, end);
    if (this.#tail.length > 0) part = Buffer.concat([this.#tail, part]);
    this.#tail = NOTHING;
    for (let from = 0; from < part.length;) {
      if (!this.#isFinish) {
        from = this.#find(part, from);
        if (from < 0) break;
        this.#isFinish = true;
      }
      from = this.#goToEnd(part, from);
    }
    if (this.finished > 0 && !this.isDone) {
      this.isDone = DONE.test(part.toString('latin1', Math.max(0, part.length - DONE_BYTES)));
    }
  }

  /** @returns the index after the event's end, or the end of the part */
  #goToEnd(part: Buffer, from: number): number {
    for (let at = from; at < part.length;) {
      if (this.isEnding) {
        this.isEnding = false;
        if (part[at] === LF) {
          this.finished++;
          this.#isFinish = false;
          return at + 1;
        }
      }
      const lf = part.indexOf(LF, at);
      if (lf < 0) break;
      this.isEnding = true;
      at = lf + 1;
    }
    return part.length;
  }

  /** @returns the index after the first byte of the value; -1: there is none, and what may be the beginning of one is in `#tail` */
  #find(bytes: Buffer, from: number): number {
    for (let at = bytes.indexOf(KEY, from); at >= 0; at = bytes.indexOf(KEY, at + 1)) {
      const colon = afterSpace(bytes, at + KEY.length);
      const value = bytes[colon] === COLON ? afterSpace(bytes, colon + 1) : colon;
      if (value >= bytes.length) {
        this.#tail = Buffer.from(bytes.subarray(at));
        return -1;
      }
      if (bytes[colon] === COLON && bytes[value] !== N) return value + 1;
    }
    if (bytes.at(-1) !== LF) this.#tail = Buffer.from(bytes.subarray(Math.max(from, bytes.length - KEY.length + 1)));
    return -1;
  }
}

function afterSpace(bytes: Buffer, from: number): number {
  let at = from;
  while (at < bytes.length && bytes[at]! <= SPACE) at++;
  return at;
}
