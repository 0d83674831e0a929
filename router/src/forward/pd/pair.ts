import type { Exchange, Failure, UnderWay } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import { RouterError } from '../../kit/errors.ts';
import type { Plugin } from '../../plugin.ts';
import type { ResponseHead } from '../../wire/response-head.ts';
import type { Sink } from '../../wire/sink.ts';
import { Attempt, type AttemptOwner, type CutCode, type PairRules } from '../attempt.ts';
import { PrefillSink } from './logprobs.ts';

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
  /** Whether the log probabilities of the prompt are put into the answer. */
  readonly mergesLogprobs: boolean;
  /** Makes the answer's sink. `merging`: to be applied to it first. */
  readonly answerSink: (merging: Plugin | null) => Sink;
  readonly owner: PairOwner;
}

/** The prefill engine's connection is let finish for so long after the end of the answer, to be used again. */
const LINGER_MS = 1_000;

/**
 * One try at a pair of engines: the same bytes to both at once; the decode engine's answer is relayed, the prefill engine's is
 * read and dropped. When one fails before the answer has begun, the other is broken off at once and the pair has failed. An error
 * that the prefill engine answers with is the answer.
 */
export class Pair implements PairOwnerOfAttempts {
  readonly #x: Exchange;
  readonly #owner: PairOwner;
  readonly #prefill: Attempt;
  readonly #decode: Attempt;
  readonly #prefilled: PrefillSink;
  readonly #merges: boolean;
  /** Whose answer the client gets. */
  #answerer: Attempt;
  #isPrefilled = false;
  #isOver = false;

  constructor({ x, prefill, decode, mergesLogprobs, answerSink, owner }: PairParts) {
    this.#x = x;
    this.#owner = owner;
    this.#merges = mergesLogprobs;
    this.#prefilled = new PrefillSink(mergesLogprobs);
    this.#prefill = new Attempt(x, prefill, this.#prefilled, this, this);
    // What is merged is complete before the answer's head goes there.
    const merging: Plugin | null = mergesLogprobs ? lateMerging(() => this.#prefilled.merging()) : null;
    this.#decode = new Attempt(x, decode, answerSink(merging), this, this);
    this.#answerer = this.#decode;
  }

  /** Sends the same bytes to both. */
  start(isFresh: boolean, bytes: Buffer): void {
    this.#prefill.start(isFresh, bytes);
    this.#decode.start(isFresh, bytes);
  }

  abort(): void {
    this.#isOver = true;
    this.#prefill.abort();
    this.#decode.abort();
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
    return attempt === this.#prefill || !this.#merges || this.#isPrefilled;
  }

  isAside(attempt: Attempt): boolean {
    return attempt !== this.#answerer;
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
    if (this.#isOver) return;
    this.#isPrefilled = true;
    this.#owner.onPrefilled(attempt);
    if (!this.#merges) return;
    if (!this.#prefilled.isTooLarge) {
      this.#decode.goOn();
      return;
    }
    this.abort();
    const message = 'The log probabilities of the prompt are too large to be put in front of the answer.';
    this.#owner.onRefused(this.#x, new RouterError('upstream_bad_answer', message));
  }

  #otherThan(attempt: Attempt): Attempt {
    return attempt === this.#prefill ? this.#decode : this.#prefill;
  }
}

interface PairOwnerOfAttempts extends AttemptOwner, PairRules, UnderWay {}

/** Made when the first byte of the answer comes by: what it is made of is not there before. */
function lateMerging(make: () => Plugin): Plugin {
  let made: Plugin | null = null;
  const merging = (): Plugin => (made ??= make());
  return {
    name: 'prefill log probabilities',
    responseBody: (x, body) => merging().responseBody!(x, body),
    responseEvent: (x, event) => merging().responseEvent!(x, event),
  };
}
