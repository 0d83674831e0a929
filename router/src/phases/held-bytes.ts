import type { Exchange } from '../exchange.ts';
import type { Sink } from '../wire/sink.ts';

/** When so much is held, the engine is read no further until it is passed on. */
const MAX_HELD_BYTES = 65_536;

/** Passes an answer on to a sink, except for what listeners of its plugins hold (`ResponseObserver.holds`), and what follows that. */
export class HeldBytes {
  readonly isStream: boolean;
  readonly #x: Exchange;
  readonly #sink: Sink;
  /** Of an answer that is no event stream: how many bytes are still to come; -1: not known. */
  #left: number;
  #parts: Buffer[] = [];
  #bytes = 0;
  /** How many times `release` is still to be called. */
  #holds = 0;
  #onPassed: (() => void)[] = [];

  /** @param contentLength null: it is an event stream; -1: not known */
  constructor(x: Exchange, sink: Sink, contentLength: number | null) {
    this.isStream = contentLength === null;
    this.#x = x;
    this.#sink = sink;
    this.#left = contentLength ?? -1;
  }

  get isEmpty(): boolean {
    return this.#parts.length === 0;
  }

  get isFull(): boolean {
    return this.#bytes > MAX_HELD_BYTES;
  }

  hold(): void {
    this.#holds++;
  }

  readonly release = (): void => {
    if (--this.#holds > 0) return;
    // Its client has left, or it ended otherwise: nothing is sent any more.
    if (this.#x.outcome !== null) this.#parts = [];
    else this.#passAll();
  };

  /** `bytes[start, end)` are valid during the call only. */
  pass(bytes: Buffer, start: number, end: number): void {
    if (start === end) return;
    if (this.#holds > 0) this.#add(bytes, start, end);
    else if (this.isStream) this.#sink.body(bytes, start, end);
    else this.#passButLast(bytes, start, end);
  }

  /** Calls `done` when nothing is held any more; never if the exchange ends before. */
  end(done: () => void): void {
    this.whenPassed(done);
    if (this.#holds === 0) this.#passAll();
  }

  whenPassed(done: () => void): void {
    this.#onPassed.push(done);
  }

  /** Whether a whole answer will be held is asked when all of it is here: its last byte stays until then. */
  #passButLast(bytes: Buffer, start: number, end: number): void {
    this.#passParts();
    this.#left -= end - start;
    // With a length that is known, only the last part has it.
    const mayBeLast = this.#left <= 0;
    const to = mayBeLast ? end - 1 : end;
    if (to > start) this.#sink.body(bytes, start, to);
    if (mayBeLast) this.#add(bytes, end - 1, end);
  }

  #add(bytes: Buffer, start: number, end: number): void {
    this.#parts.push(Buffer.from(bytes.subarray(start, end)));
    this.#bytes += end - start;
  }

  #passParts(): void {
    const parts = this.#parts;
    this.#parts = [];
    this.#bytes = 0;
    for (const part of parts) this.#sink.body(part, 0, part.length);
  }

  #passAll(): void {
    this.#passParts();
    this.#sink.flush();
    for (const done of this.#onPassed.splice(0)) done();
  }
}
