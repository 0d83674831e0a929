import type { AnswerEar, Exchange } from '../exchange.ts';
import type { Plugin } from '../plugin.ts';
import { ChunkedReader, type TakePart } from '../wire/chunked.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import type { Sink, Source } from '../wire/sink.ts';
import { HeldBytes } from './held-bytes.ts';
import { ReadShare } from './read-share.ts';

/** @returns `sink`, after the plugins that observe the response, if there are any */
export function listeningSink(x: Exchange, plugins: readonly Plugin[], sink: Sink): Sink {
  const listeners = plugins.filter(({ hearAnswer }) => hearAnswer !== undefined);
  return listeners.length === 0 ? sink : new ListeningSink(x, sink, listeners);
}

/**
 * Stands before a sink and passes everything on as it comes, chunk lines too; ears get the payload, before it is passed on. An ear that
 * throws hears no more of this answer: its guard counts that (`phases/guard.ts`), and the answer goes on.
 */
class ListeningSink implements Sink {
  readonly takesFraming: boolean;
  readonly #x: Exchange;
  readonly #inner: Sink;
  readonly #listeners: readonly Plugin[];
  readonly #share = new ReadShare();
  #ears: AnswerEar[] = [];
  /** Finds the payload where chunk lines are among it; null where there are none. */
  #chunks: ChunkedReader | null = null;
  /** null: no ear may hold anything of this answer. */
  #held: HeldBytes | null = null;

  constructor(x: Exchange, inner: Sink, listeners: readonly Plugin[]) {
    this.#x = x;
    this.#inner = inner;
    this.#listeners = listeners;
    this.takesFraming = inner.takesFraming;
  }

  get source(): Source | null {
    return this.#inner.source;
  }

  set source(source: Source | null) {
    this.#inner.source = source;
  }

  get hasUnsent(): boolean {
    return this.#inner.hasUnsent === true || this.#held?.isEmpty === false;
  }

  head(head: ResponseHead): void {
    for (const plugin of this.#listeners) {
      try {
        const ear = plugin.hearAnswer!(this.#x, head);
        if (ear !== null) this.#ears.push(ear);
      } catch {
        // Counted by its guard.
      }
    }
    if (this.takesFraming && head.isChunked) this.#chunks = new ChunkedReader(false, this.#tell);
    if (this.#ears.some(({ holds }) => holds !== undefined)) {
      this.#held = new HeldBytes(this.#x, this.#inner, head.isEventStream ? null : head.contentLength);
    }
    if (this.#inner === this.#x.sink) this.#x.isAnswerOut = true;
    this.#inner.head(head);
  }

  body(bytes: Uint8Array, start: number, end: number): void {
    if (this.#ears.length > 0 && this.#x.outcome === null) {
      this.#share.add(end - start);
      if (this.#chunks === null) this.#tell(bytes, start, end);
      else this.#chunks.read(bytes, start, end);
    }
    const held = this.#held;
    if (held === null) this.#inner.body(bytes, start, end);
    else {
      if (held.isStream) this.#askEars(held, false);
      held.pass(bytes, start, end);
    }
  }

  flush(): boolean {
    const { source } = this.#inner;
    let hasRoom = this.#inner.flush();
    if (this.#ears.length === 0) return hasRoom;
    // The sink of one that is over may be at its next answer; one that is full still resumes by itself.
    const resume = (): void => {
      const isFull = this.#inner.hasUnsent === true || this.#held?.isFull === true;
      if (this.#inner.source === source && !isFull) source?.resume();
    };
    for (const ear of this.#ears) if (ear.isBehind?.(resume) === true) hasRoom = false;
    if (this.#held?.isFull === true) {
      this.#held.whenPassed(resume);
      hasRoom = false;
    }
    return hasRoom && !this.#share.isUsedUp(resume);
  }

  makeReady(done: () => void): void {
    const held = this.#held;
    if (held === null) this.#passReady(done);
    else {
      this.#askEars(held, true);
      held.end(() => this.#passReady(done));
    }
  }

  whenPassed(done: () => void): void {
    if (this.#held === null) done();
    else this.#held.end(done);
  }

  end(): void {
    this.#inner.end();
  }

  cut(reason: string, lastWords: string): void {
    this.#inner.cut(reason, lastWords);
  }

  #passReady(done: () => void): void {
    if (this.#inner.makeReady === undefined) done();
    else this.#inner.makeReady(done);
  }

  #askEars(held: HeldBytes, isWhole: boolean): void {
    for (const ear of this.#ears) if (ear.holds?.(isWhole, held.release) === true) held.hold();
  }

  readonly #tell: TakePart = (bytes, start, end) => {
    if (start === end) return;
    const buffer = bytes instanceof Buffer ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (const ear of this.#ears) {
      try {
        ear.hear(buffer, start, end);
      } catch {
        this.#ears = this.#ears.filter((other) => other !== ear);
      }
    }
  };
}
