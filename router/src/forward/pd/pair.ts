import type { Exchange } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import { copyInTurns } from '../../kit/copy-slices.ts';
import { RouterError } from '../../kit/errors.ts';
import { BufferSink } from '../../wire/buffer-sink.ts';
import type { ResponseHead } from '../../wire/response-head.ts';
import type { Sink } from '../../wire/sink.ts';
import type { AttemptContext, AttemptRules, Leading, PairNotes, PairRules, Started } from '../attempt-context.ts';
import { Attempt } from '../attempt.ts';
import { unread } from '../errors.ts';
import { MAX_HELD_BYTES } from '../../phases/event-line.ts';
import type { Changer } from '../../phases/response-sink.ts';
import { COMPLETE, type Failed, type Result, type ResultListener } from '../../wire/result.ts';
import { beginsWithError } from './failed-stream.ts';
import type { Handover, Meeting, Met, PairStyle } from './meeting.ts';

export interface PairParts {
  readonly x: Exchange;
  readonly prefill: Worker;
  readonly decode: Worker;
  readonly style: PairStyle;
  /** Makes the response's sink. `first`: a change that comes before those of plugins. */
  readonly sinkFor: (first: Changer | null) => Sink;
  readonly context: AttemptContext;
  /** Of the two attempts it learns one result: that of the response, or of the attempt that failed. */
  readonly listener: ResultListener<Leading>;
  readonly notes: PairNotes;
}

/** The prefill engine's connection is let finish for so long after the end of the answer, to be used again. */
const LINGER_MS = 1_000;

/**
 * One try at a pair of engines: each gets its request, both at once or the decode engine once the prefill engine has answered, as
 * they meet; the decode engine's answer is relayed, the prefill engine's is read and dropped. When one fails before the answer has
 * begun, the other is broken off at once and the pair has failed. An error that the prefill engine answers with is the answer.
 */
export class Pair implements ResultListener<Attempt>, AttemptRules, PairRules, Started {
  isOver = false;
  readonly pair: PairRules = this;
  readonly #parts: PairParts;
  /** Set once both engines can be asked. */
  #meeting: Meeting | null = null;
  #prefill!: Attempt;
  #decode!: Attempt;
  /** The prefill engine's answer: kept where it is read, else dropped. */
  #prefilled!: BufferSink;
  /** What a decode engine got that had to wait for it. */
  #handed: Buffer | null = null;
  /** Whose answer the client gets. */
  #answerer!: Attempt;
  #isPrefilled = false;

  constructor(parts: PairParts) {
    this.#parts = parts;
  }

  /** Both engines need the whole body: what lets them find each other is added to it. */
  start(isFresh: boolean, changed: Buffer | null): void {
    if (changed !== null) this.#meet(isFresh, changed);
    else this.#parts.x.body.whenJoined((body) => this.#meet(isFresh, body));
  }

  #meet(isFresh: boolean, body: Buffer): void {
    const { x, prefill, style, listener } = this.#parts;
    if (this.isOver) return;
    const meeting = style.meet(x.path, body, prefill);
    if (!(meeting instanceof Promise)) this.#begin(isFresh, meeting);
    else
      meeting.then(
        (met) => (this.isOver ? undefined : this.#begin(isFresh, met)),
        (error: Error) => listener.ended({ x, worker: prefill }, unread(error)),
      );
  }

  #begin(isFresh: boolean, meeting: Met): void {
    const { x, prefill, decode, sinkFor, context, listener } = this.#parts;
    if (meeting instanceof RouterError) {
      listener.ended({ x, worker: prefill }, { kind: 'refused', error: meeting });
    } else if (typeof meeting === 'string') {
      listener.ended({ x, worker: prefill }, { kind: 'failed', failure: 'connect', detail: meeting });
    } else {
      this.#meeting = meeting;
      this.#prefilled = new BufferSink({ maxBytes: meeting.read === null ? 0 : MAX_HELD_BYTES });
      this.#prefill = new Attempt(x, prefill, this.#prefilled, context, this, this);
      this.#decode = new Attempt(x, decode, sinkFor(null), context, this, this);
      this.#answerer = this.#decode;
      this.#prefill.start(isFresh, meeting.prefill);
      if (meeting.decode !== null) this.#decode.start(isFresh, meeting.decode);
    }
  }

  abort(): void {
    this.isOver = true;
    if (this.#meeting === null) return;
    this.#prefill.abort();
    this.#decode.abort();
  }

  workerHung(worker: Worker, proof: string): void {
    if (this.#meeting === null) return;
    this.#prefill.workerHung(worker, proof);
    this.#decode.workerHung(worker, proof);
  }

  workerLost(worker: Worker, detail: string): void {
    if (this.#meeting === null) return;
    this.#prefill.workerLost(worker, detail);
    this.#decode.workerLost(worker, detail);
  }

  get isBetweenEvents(): boolean {
    return this.#meeting !== null && this.#answerer.isBetweenEvents;
  }

  // ---- what the attempts ask ----

  mayBegin(attempt: Attempt): boolean {
    return attempt === this.#prefill || this.#meeting!.read === null || this.#isPrefilled;
  }

  isFailure(bytes: Buffer, start: number, end: number): boolean {
    return beginsWithError(bytes, start, end);
  }

  isAside(attempt: Attempt): boolean {
    return attempt !== this.#answerer;
  }

  rejects(attempt: Attempt, head: ResponseHead): boolean {
    // Too late to be the answer.
    if (attempt === this.#prefill && this.#decode.hasAnswer) return false;
    if (this.#parts.context.retries.rejects(attempt.x, attempt.worker, head)) return true;
    const other = this.#otherThan(attempt);
    other.abort();
    if (attempt === this.#prefill) {
      attempt.sink = this.#decode.sink;
      attempt.sink.source = attempt;
      this.#answerer = attempt;
    }
    return false;
  }

  // ---- what the attempts tell ----

  began(attempt: Attempt, head: ResponseHead): void {
    this.#parts.listener.began?.(attempt, head);
  }

  ended(attempt: Attempt, result: Result): void {
    if (result.kind === 'failed') this.#failed(attempt, result);
    else if (result.kind === 'complete') this.#completed(attempt);
    else if (result.kind === 'cut' && attempt !== this.#answerer) {
      this.#failed(attempt, { kind: 'failed', failure: 'reset', detail: result.detail });
    } else {
      this.abort();
      this.#parts.listener.ended(attempt, result);
    }
  }

  #failed(attempt: Attempt, result: Failed): void {
    const { x, context, listener, notes } = this.#parts;
    if (this.isOver) return;
    // Its first bytes are there, so the decode engine has what it needs of the other one.
    if (attempt === this.#prefill && this.#decode.hasAnswer) {
      notes.failedAside(x, attempt.worker, result);
      return;
    }
    // What was handed over is good still: only its connection was not.
    if (result.failure === 'stale' && this.#handed !== null) {
      this.#decode = new Attempt(x, attempt.worker, attempt.sink, context, this, this);
      this.#answerer = this.#decode;
      this.#decode.start(true, this.#handed);
      return;
    }
    this.abort();
    listener.ended(attempt, result);
  }

  #completed(attempt: Attempt): void {
    if (attempt === this.#answerer) {
      this.isOver = true;
      const other = this.#otherThan(attempt);
      if (!other.isOver) setTimeout(() => other.abort(), LINGER_MS).unref();
      this.#parts.listener.ended(attempt, COMPLETE);
      return;
    }
    if (!this.isOver) this.#prefillEnded(attempt);
  }

  #prefillEnded(prefill: Attempt): void {
    const { read } = this.#meeting!;
    if (read === null) {
      this.#handOver(prefill, null);
      return;
    }
    if (this.#prefilled.isTooLarge) {
      this.abort();
      const message = 'What the prefill engine says is too large to be put into the answer.';
      this.#parts.listener.ended(prefill, { kind: 'refused', error: new RouterError('upstream_bad_answer', message) });
      return;
    }
    const { bytes, response } = this.#prefilled;
    const isWanted = (): boolean => !this.isOver;
    copyInTurns(this.#prefilled.take(), bytes, isWanted, (answer) => {
      const handover = read(answer, response!.isEventStream);
      if (!(handover instanceof Promise)) this.#handOver(prefill, handover);
      else
        handover.then(
          (made) => this.#handOver(prefill, made),
          (error: Error) => this.#handOver(prefill, null, error.message),
        );
    });
  }

  #handOver(prefill: Attempt, handover: Handover | null, detail = 'nothing for the decode engine in its answer'): void {
    if (this.isOver) return;
    if (this.#meeting!.read !== null && handover === null) {
      this.abort();
      this.#parts.listener.ended(prefill, { kind: 'failed', failure: 'no_handover', detail });
      return;
    }
    this.#isPrefilled = true;
    this.#parts.notes.prefilled(prefill.x, prefill.worker);
    if (handover === null) return;
    const decode = this.#decode;
    if (handover.merging !== null) {
      // Nothing of the answer went there: it waited for this.
      decode.sink = this.#parts.sinkFor(handover.merging);
      decode.sink.source = decode;
    }
    this.#handed = handover.decode;
    if (this.#handed === null) decode.goOn();
    else decode.start(false, this.#handed);
  }

  #otherThan(attempt: Attempt): Attempt {
    return attempt === this.#prefill ? this.#decode : this.#prefill;
  }
}
