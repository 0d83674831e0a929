import type { Exchange } from '../exchange.ts';
import { EventSplitter, joined } from '../kit/sse.ts';
import { MAX_HELD_BYTES } from '../phases/event-line.ts';
import { PayloadOut } from '../phases/payload-out.ts';
import { PassingSink } from '../wire/passing-sink.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import { COMPLETE } from '../wire/result.ts';
import type { Sink } from '../wire/sink.ts';
import type { Generation } from './generation.ts';

/** A larger answer, or event of a stream, is passed on as it comes where it need not be changed: it can't be continued then. */
const MAX_UNCHANGED_BYTES = 1_048_576;

/**
 * - `plain`: bytes pass as they come;
 * - `payload`: they pass without their chunk lines;
 * - `events`, `answer`: through the generation;
 * - `refused`: a response that continues nothing, dropped.
 */
type Mode = 'plain' | 'payload' | 'events' | 'answer' | 'refused';

export interface ResumeSinkParts {
  /** Known when the request is sent; null: it is not continued. */
  readonly generation: () => Generation | null;
  /** A generation keeps more than before. */
  readonly hasGrown: (generation: Generation) => void;
  /** The last part is complete; plugins that read whole responses get the response now. */
  readonly isWhole: () => void;
}

/** The response of an exchange that may be continued: it stays the same over all attempts, and plugins and the client get one response. */
export class ResumeSink extends PassingSink {
  /** The engine that should have continued responded with something else: its status. */
  refusal = 0;
  /** The whole response went out, though its engine did not send all of it. */
  isOver = false;
  readonly #x: Exchange;
  readonly #generation: () => Generation | null;
  readonly #hasGrown: (generation: Generation) => void;
  readonly #isWhole: () => void;
  readonly #out: PayloadOut;
  #mode: Mode = 'plain';
  #head: ResponseHead | null = null;
  #isEnding = false;
  #splitter = new EventSplitter<Buffer>(joined);
  #held: Buffer[] = [];
  #heldBytes = 0;

  constructor(x: Exchange, inner: Sink, { generation, hasGrown, isWhole }: ResumeSinkParts) {
    super(inner);
    this.#x = x;
    this.#generation = generation;
    this.#hasGrown = hasGrown;
    this.#isWhole = isWhole;
    this.#out = new PayloadOut(inner);
  }

  override get takesFraming(): boolean {
    return this.#generation() === null && super.takesFraming;
  }

  /** A part of the response went out. */
  get hasBegun(): boolean {
    return this.#out.hasHead;
  }

  override head(head: ResponseHead): void {
    const generation = this.#generation();
    this.#splitter = new EventSplitter<Buffer>(joined);
    this.#dropHeld();
    const isStream = generation?.asked.isStream === true;
    const isReadable = head.status === 200 && head.get('content-encoding') === undefined;
    const fits = generation !== null && isReadable && head.isEventStream === isStream;
    if (this.#out.hasHead) {
      this.refusal = fits ? 0 : head.status;
      this.#mode = fits ? 'events' : 'refused';
      return;
    }
    if (generation === null) return this.#out.head(this.#x, head, true);
    this.#head = head;
    this.#mode = !fits ? 'payload' : isStream ? 'events' : 'answer';
    if (this.#mode === 'payload') generation.whyNot ??= 'answer';
    if (this.#mode === 'events') head.setLength(null);
    if (this.#mode !== 'answer') this.#out.head(this.#x, head);
  }

  override body(bytes: Buffer, start: number, end: number): void {
    if (this.#isEnding || this.#mode === 'refused') return;
    if (this.#mode === 'plain') return this.inner.body(bytes, start, end);
    if (this.#mode === 'payload') return this.#out.add(Buffer.from(bytes.subarray(start, end)));
    if (this.#mode === 'answer') return this.#hold(bytes.subarray(start, end));
    const generation = this.#generation()!;
    for (const event of this.#splitter.pushCopy(bytes, start, end)) {
      for (const made of generation.event(event)) this.#out.add(made);
      if (generation.isStopped) return this.#endEarly(generation);
    }
    this.#hasGrown(generation);
    const { heldBytes } = this.#splitter;
    if (heldBytes > (generation.isRewritten ? MAX_HELD_BYTES : MAX_UNCHANGED_BYTES)) this.#passOn(generation);
  }

  override flush(): boolean {
    if (this.#mode === 'answer' || this.#mode === 'refused' || this.isOver) return true;
    this.#out.send();
    return this.inner.flush();
  }

  override makeReady(done: () => void): void {
    if (this.isOver) return;
    const generation = this.#generation();
    if (generation !== null && !this.#isComplete(generation)) return done();
    this.#isWhole();
    this.#out.end();
    super.makeReady(done);
  }

  override whenPassed(done: () => void): void {
    const generation = this.#generation();
    if (generation?.isFinished === true && this.#mode === 'events') {
      this.#out.add(generation.tail());
      return this.#end(done);
    }
    // What is held may be given up for another part.
    if (generation !== null && generation.whyNot === null && this.#mode !== 'payload') return done();
    super.whenPassed(done);
  }

  override end(): void {
    const generation = this.#generation();
    if (this.isOver || this.#mode === 'refused' || generation?.isAborted === true) return;
    this.inner.end();
  }

  /** @returns false: another part follows */
  #isComplete(generation: Generation): boolean {
    if (this.#mode === 'refused') return false;
    if (this.#mode === 'events') {
      const rest = this.#splitter.end();
      const events = rest.length === 0 ? [] : generation.event(rest);
      for (const made of [...events, ...(generation.isAborted ? [] : generation.release())]) this.#out.add(made);
    }
    if (this.#mode === 'answer') {
      const body = Buffer.concat(this.#held);
      this.#dropHeld();
      const made = generation.answer(body);
      if (made !== null) this.#sendAnswer(made);
    }
    return !generation.isAborted;
  }

  #sendAnswer(body: Buffer): void {
    const head = this.#head!;
    head.setLength(body.length);
    this.#out.head(this.#x, head);
    this.#out.add(body);
  }

  #hold(bytes: Uint8Array): void {
    this.#held.push(Buffer.from(bytes));
    this.#heldBytes += bytes.length;
    const generation = this.#generation()!;
    if (generation.isRewritten || this.#heldBytes <= MAX_UNCHANGED_BYTES) return;
    // It may be one that was aborted: what follows are its experts.
    if (this.#heldBytes <= MAX_HELD_BYTES && this.#held.some((piece) => piece.includes('"abort"'))) return;
    generation.whyNot ??= 'large_answer';
    this.#mode = 'payload';
    this.#head!.setLength(null);
    this.#out.head(this.#x, this.#head!);
    for (const piece of this.#held) this.#out.add(piece);
    this.#dropHeld();
  }

  #dropHeld(): void {
    this.#held = [];
    this.#heldBytes = 0;
  }

  /** The event that comes is too large to be held: from here on everything passes as it is. */
  #passOn(generation: Generation): void {
    generation.whyNot ??= 'large_event';
    this.#mode = 'payload';
    for (const made of generation.release()) this.#out.add(made);
    for (const piece of this.#splitter.held) this.#out.add(piece);
  }

  /** A stop string has ended the generation, and its engine does not know. */
  #endEarly(generation: Generation): void {
    this.#out.add(generation.tail());
    this.#x.activity?.abort();
    this.#end(() => this.#x.ended(this, COMPLETE));
  }

  #end(done: () => void): void {
    this.#isEnding = true;
    this.#out.end();
    super.makeReady(() => {
      this.end();
      this.isOver = true;
      done();
    });
  }
}
