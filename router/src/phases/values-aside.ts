import type { ValueCutter, ValueTaker } from '../plugin.ts';
import type { PayloadOut } from './payload-out.ts';

/** Values that are smaller together are held and put back. */
const HELD_BYTES = 131_072;

interface ValuesParts {
  readonly out: PayloadOut;
  /** Bytes of the response with a mark in place of each value. */
  readonly take: (bytes: Buffer, start: number, end: number) => void;
  /** What came of the body, or of the event, that is not complete, as its plugin changes it; when what came before is out. */
  readonly changedSoFar: (then: (made: Buffer) => void) => void;
  /** Sends the head of the answer, unless it is out. */
  readonly begin: () => void;
  /** Nothing more should come for now. */
  readonly onBusy: () => void;
  readonly onIdle: () => void;
}

/**
 * Large values of an answer pass beside what is held of it for a plugin. When one begins, what came before it goes out as the plugin
 * changes it, up to the mark of the value; the value follows as it comes, and what stands after it when that is complete.
 */
export class ValuesAside implements ValueTaker {
  /** A value begins: what comes meanwhile waits. */
  isBusy = false;
  readonly #cutter: ValueCutter;
  readonly #parts: ValuesParts;
  /** Values that are held, by their marks. */
  readonly #held = new Map<string, Buffer[]>();
  #heldBytes = 0;
  /** The mark of the last value that went out as it came; its place is out with all before it. */
  #passed: string | null = null;
  /** The mark of a value that the plugin left out. */
  #dropped: string | null = null;
  #waiting: (() => void)[] = [];

  constructor(makeCutter: (taker: ValueTaker) => ValueCutter | null, parts: ValuesParts) {
    this.#parts = parts;
    this.#cutter = makeCutter(this) ?? { push: parts.take };
  }

  /** `bytes[start, end)` are valid during the call only. */
  push(bytes: Buffer, start: number, end: number): void {
    this.#cutter.push(bytes, start, end);
  }

  rest(bytes: Buffer, start: number, end: number): void {
    if (!this.isBusy) this.#parts.take(bytes, start, end);
    else {
      const copy = Buffer.from(bytes.subarray(start, end));
      this.#waiting.push(() => this.rest(copy, 0, copy.length));
    }
  }

  piece(mark: string, bytes: Buffer, start: number, end: number): void {
    if (!this.isBusy && mark === this.#passed) this.#parts.out.pass(bytes, start, end);
    else if (this.isBusy || mark !== this.#dropped) this.#hold(mark, Buffer.from(bytes.subarray(start, end)));
  }

  /** A body or an event as its plugin left it, without what is out of it, and with the values that were held. */
  whole(changed: Buffer): Buffer {
    const out = this.#passed === null ? -1 : changed.indexOf(this.#passed);
    const rest = out < 0 ? changed : changed.subarray(out + this.#passed!.length);
    if (this.#held.size === 0) return rest;
    const parts: Buffer[] = [];
    let at = 0;
    for (const [mark, pieces] of this.#held) {
      const found = rest.indexOf(mark, at);
      if (found < 0) continue;
      parts.push(rest.subarray(at, found), ...pieces);
      at = found + mark.length;
      this.#letGo(mark);
    }
    return at === 0 ? rest : Buffer.concat([...parts, rest.subarray(at)]);
  }

  #hold(mark: string, copy: Buffer): void {
    if (this.isBusy) {
      this.#waiting.push(() => this.piece(mark, copy, 0, copy.length));
      return;
    }
    this.#held.set(mark, [...(this.#held.get(mark) ?? []), copy]);
    this.#heldBytes += copy.length;
    if (this.#heldBytes > HELD_BYTES) this.#begin(mark);
  }

  #letGo(mark: string): void {
    for (const { length } of this.#held.get(mark) ?? []) this.#heldBytes -= length;
    this.#held.delete(mark);
  }

  #begin(mark: string): void {
    const { out, begin, changedSoFar, onBusy, onIdle } = this.#parts;
    this.isBusy = true;
    onBusy();
    changedSoFar((made) => {
      const at = made.indexOf(mark);
      if (at < 0) {
        this.#dropped = mark;
        // All that is complete is out: what is held still was left out by the plugin too.
        for (const each of this.#held.keys()) if (!made.includes(each)) this.#letGo(each);
      } else {
        begin();
        const pieces = this.#held.get(mark)!;
        this.#letGo(mark);
        out.add(this.whole(made.subarray(0, at)));
        for (const piece of pieces) out.add(piece);
        this.#passed = mark;
      }
      this.isBusy = false;
      const waiting = this.#waiting;
      this.#waiting = [];
      for (const each of waiting) each();
      if (!this.isBusy) onIdle();
    });
  }
}
