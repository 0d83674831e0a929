import type { Exchange, Failure, UnderWay } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import { copyInTurns } from '../../kit/copy-slices.ts';
import { RouterError } from '../../kit/errors.ts';
import { BufferSink } from '../../wire/buffer-sink.ts';
import type { ResponseHead } from '../../wire/response-head.ts';
import type { Sink } from '../../wire/sink.ts';
import type { AttemptOwner, CutCode, PairRules } from '../attempt-owner.ts';
import { Attempt } from '../attempt.ts';
import type { Merging } from '../merging.ts';
import { MAX_HELD_BYTES } from '../../phases/event-line.ts';
import { beginsWithError } from './failed-stream.ts';
import type { Handover, Meeting } from './meeting.ts';

/** Who started a pair. Of the two attempts it hears one end at most: that of the answer, or of the one that failed. */
export interface PairOwner extends AttemptOwner {
  /** The prefill engine has done its part. */
  onPrefilled(attempt: Attempt): void;
  /** The prefill engine failed after the decode engine had got what it needs. */
  onAsideFailed(attempt: Attempt, failure: Failure, detail: string): void;
  onRefused(x: Exchange, error: RouterError): void;
}

export interface PairParts {
  readonly x: Exchange;
  readonly prefill: Worker;
  readonly decode: Worker;
  readonly meeting: Meeting;
  /** Makes the answer's sink. `merging`: to be applied to it first. */
  readonly answerSink: (merging: Merging | null) => Sink;
  readonly owner: PairOwner;
}

/** The prefill engine's connection is let finish for so long after the end of the answer, to be used again. */
const LINGER_MS = 1_000;

/**
 * One try at a pair of engines: each gets its request, both at once or the decode engine once the prefill engine has answered, as
 * they meet; the decode engine's answer is relayed, the prefill engine's is read and dropped. When one fails before the answer has
 * begun, the other is broken off at once and the pair has failed. An error that the prefill engine answers with is the answer.
 */
export class Pair implements PairOwnerOfAttempts {
  readonly #x: Exchange;
  readonly #owner: PairOwner;
  readonly #meeting: Meeting;
  readonly #answerSink: (merging: Merging | null) => Sink;
  readonly #prefill: Attempt;
  #decode: Attempt;
  /** The prefill engine's answer: kept where it is read, else dropped. */
  readonly #prefilled: BufferSink;
  /** What a decode engine got that had to wait for it. */
  #handed: Buffer | null = null;
  /** Whose answer the client gets. */
  #answerer: Attempt;
  #isPrefilled = false;
  #isOver = false;

  constructor({ x, prefill, decode, meeting, answerSink, owner }: PairParts) {
    this.#x = x;
    this.#owner = owner;
    this.#meeting = meeting;
    this.#answerSink = answerSink;
    this.#prefilled = new BufferSink({ maxBytes: meeting.read === null ? 0 : MAX_HELD_BYTES });
    this.#prefill = new Attempt(x, prefill, this.#prefilled, this, this);
    this.#decode = new Attempt(x, decode, answerSink(null), this, this);
    this.#answerer = this.#decode;
  }

  start(isFresh: boolean): void {
    const { prefill, decode } = this.#meeting;
    this.#prefill.start(isFresh, prefill);
    if (decode !== null) this.#decode.start(isFresh, decode);
  }

  abort(): void {
    this.#isOver = true;
    this.#prefill.abort();
    this.#decode.abort();
  }

  workerHung(worker: Worker, proof: string): void {
    this.#prefill.workerHung(worker, proof);
    this.#decode.workerHung(worker, proof);
  }

  get isBetweenEvents(): boolean {
    return this.#answerer.isBetweenEvents;
  }

  // ---- what the attempts ask ----

  get clock(): AttemptOwner['clock'] {
    return this.#owner.clock;
  }

  get coalescer(): AttemptOwner['coalescer'] {
    return this.#owner.coalescer;
  }

  get answerTimeouts(): AttemptOwner['answerTimeouts'] {
    return this.#owner.answerTimeouts;
  }

  mayBegin(attempt: Attempt): boolean {
    return attempt === this.#prefill || this.#meeting.read === null || this.#isPrefilled;
  }

  isFailure(bytes: Buffer, start: number, end: number): boolean {
    return beginsWithError(bytes, start, end);
  }

  isAside(attempt: Attempt): boolean {
    return attempt !== this.#answerer;
  }

  leavesHung(attempt: Attempt): boolean {
    return this.#owner.leavesHung(attempt);
  }

  rejects(attempt: Attempt, head: ResponseHead): boolean {
    // Too late to be the answer.
    if (attempt === this.#prefill && this.#decode.hasAnswer) return false;
    if (this.#owner.rejects(attempt, head)) return true;
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

  onAnswerBegins(attempt: Attempt, head: ResponseHead): void {
    this.#owner.onAnswerBegins(attempt, head);
  }

  onFailed(attempt: Attempt, failure: Failure, detail: string): void {
    if (this.#isOver) return;
    // Its first bytes are there, so the decode engine has what it needs of the other one.
    if (attempt === this.#prefill && this.#decode.hasAnswer) {
      this.#owner.onAsideFailed(attempt, failure, detail);
      return;
    }
    // What was handed over is good still: only its connection was not.
    if (failure === 'stale' && this.#handed !== null) {
      this.#decode = new Attempt(this.#x, attempt.worker, attempt.sink, this, this);
      this.#answerer = this.#decode;
      this.#decode.start(true, this.#handed);
      return;
    }
    this.abort();
    this.#owner.onFailed(attempt, failure, detail);
  }

  onCut(attempt: Attempt, code: CutCode, detail: string): void {
    if (attempt !== this.#answerer) {
      this.onFailed(attempt, 'reset', detail);
      return;
    }
    this.abort();
    this.#owner.onCut(attempt, code, detail);
  }

  onComplete(attempt: Attempt): void {
    if (attempt === this.#answerer) {
      this.#isOver = true;
      const other = this.#otherThan(attempt);
      if (!other.isOver) setTimeout(() => other.abort(), LINGER_MS).unref();
      this.#owner.onComplete(attempt);
      return;
    }
    if (!this.#isOver) this.#prefillEnded(attempt);
  }

  #prefillEnded(prefill: Attempt): void {
    const { read } = this.#meeting;
    if (read === null) {
      this.#handOver(prefill, null);
      return;
    }
    if (this.#prefilled.isTooLarge) {
      this.abort();
      const message = 'What the prefill engine says is too large to be put into the answer.';
      this.#owner.onRefused(this.#x, new RouterError('upstream_bad_answer', message));
      return;
    }
    const { bytes, response } = this.#prefilled;
    const isWanted = (): boolean => !this.#isOver;
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
    if (this.#isOver) return;
    if (this.#meeting.read !== null && handover === null) {
      this.abort();
      this.#owner.onFailed(prefill, 'no_handover', detail);
      return;
    }
    this.#isPrefilled = true;
    this.#owner.onPrefilled(prefill);
    if (handover === null) return;
    const decode = this.#decode;
    if (handover.merging !== null) {
      // Nothing of the answer went there: it waited for this.
      decode.sink = this.#answerSink(handover.merging);
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

interface PairOwnerOfAttempts extends AttemptOwner, PairRules, UnderWay {}
