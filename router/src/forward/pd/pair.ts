import type { Exchange, Started } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import { readUsage } from '../../engines/usage.ts';
import { errorOf } from '../../engines/dialects/generate.ts';
import { ABORTED_IN_TRANSFER } from '../../engines/dialects/pairs.ts';
import { LF } from '../../kit/bytes.ts';
import { copyInTurns } from '../../kit/copy-slices.ts';
import { RouterError } from '../../kit/errors.ts';
import { Json } from '../../kit/json-members.ts';
import { BufferSink } from '../../wire/buffer-sink.ts';
import { INCOMPLETE } from '../../wire/fields.ts';
import type { ResponseHead } from '../../wire/response-head.ts';
import type { Sink } from '../../wire/sink.ts';
import type { AttemptContext, AttemptRules, Leading, PairNotes, PairRules } from '../attempt-context.ts';
import { Attempt, MAX_EARLY_BYTES, REMOVED } from '../attempt.ts';
import { unread } from '../errors.ts';
import { MAX_HELD_BYTES } from '../../phases/event-line.ts';
import type { Plugin } from '../../plugin.ts';
import { sendInParts } from '../../wire/send-in-parts.ts';
import { COMPLETE, type Failed, type Result, type ResultListener } from '../../wire/result.ts';
import type { Aborted, PairPlan, Planned, PairStyle, PrefillRead } from './pair-plan.ts';

export interface PairParts {
  readonly x: Exchange;
  readonly prefill: Worker;
  readonly decode: Worker;
  readonly style: PairStyle;
  /** Makes the response's sink. `first`: a change that comes before those of plugins. */
  readonly sinkFor: (first: Plugin | null) => Sink;
  readonly context: AttemptContext;
  /** Of the two attempts it learns one result: that of the response, or of the attempt that failed. */
  readonly listener: ResultListener<Leading>;
  readonly notes: PairNotes;
}

/** For this long after the response the prefill engine's connection may finish, so that it can be reused. */
const LINGER_MS = 1_000;

/**
 * An attempt at a pair of engines. Each gets its request, both at once or the decode engine after the prefill engine's response, by the
 * plan. The client gets the response of the decode engine; that of the prefill engine is read and dropped. If one engine fails before
 * the response has begun, the other attempt is aborted and the pair has failed. An error response of the prefill engine is the response.
 */
export class Pair implements ResultListener<Attempt>, AttemptRules, PairRules, Started {
  isOver = false;
  readonly pair: PairRules = this;
  readonly #parts: PairParts;
  /** null: it is not made yet. */
  #plan: PairPlan | null = null;
  /** The engine that was lost before that, and why. */
  #lost: { readonly worker: Worker; readonly detail: string } | null = null;
  #prefill!: Attempt;
  #decode!: Attempt;
  /** The prefill engine's response: kept if the plan reads it, else dropped. */
  #prefilled!: BufferSink;
  /** The body that was made from the prefill engine's response. */
  #handed: Buffer | null = null;
  /** The attempt whose response the client gets. */
  #answerer!: Attempt;
  #isPrefilled = false;

  constructor(parts: PairParts) {
    this.#parts = parts;
  }

  /** Waits for the whole body: fields by which the engines find each other are added to it. */
  start(isFresh: boolean, changed: Buffer | null): void {
    if (changed !== null) this.#planFor(isFresh, changed);
    else this.#parts.x.body.whenJoined((body) => this.#planFor(isFresh, body));
  }

  #planFor(isFresh: boolean, body: Buffer): void {
    const { x, prefill, style, listener } = this.#parts;
    if (this.isOver) return;
    const planned = style.plan(x.path, body, prefill);
    if (!(planned instanceof Promise)) this.#begin(isFresh, planned);
    else
      planned.then(
        (plan) => (this.isOver ? undefined : this.#begin(isFresh, plan)),
        (error: Error) => listener.ended({ x, worker: prefill }, unread(error)),
      );
  }

  #begin(isFresh: boolean, plan: Planned): void {
    const { x, prefill, decode, sinkFor, context, listener } = this.#parts;
    const removed = [prefill, decode].find(({ pool }) => pool.isBroken);
    const lost = removed === undefined ? this.#lost : { worker: removed, detail: REMOVED };
    if (plan instanceof RouterError) {
      listener.ended({ x, worker: prefill }, { kind: 'refused', error: plan });
    } else if (typeof plan === 'string') {
      listener.ended({ x, worker: prefill }, { kind: 'failed', failure: 'connect', detail: plan });
    } else if (lost !== null) {
      listener.ended({ x, worker: lost.worker }, { kind: 'failed', failure: 'connect', detail: lost.detail });
    } else {
      this.#plan = plan;
      // The prefill engine's response and the first event of the decode engine's are read, and both may be merged.
      x.refuseCompression();
      this.#prefilled = new BufferSink({ maxBytes: plan.read === null ? 0 : MAX_HELD_BYTES });
      this.#prefill = new Attempt(x, prefill, this.#prefilled, context, this, this);
      this.#decode = new Attempt(x, decode, sinkFor(null), context, this, this);
      this.#answerer = this.#decode;
      this.#prefill.start(isFresh, plan.prefill);
      if (plan.decode !== null) this.#decode.start(isFresh, plan.decode);
    }
  }

  abort(): void {
    this.isOver = true;
    if (this.#plan === null) return;
    this.#prefill.abort();
    this.#decode.abort();
  }

  workerHung(worker: Worker, proof: string): void {
    if (this.#plan === null) return;
    this.#prefill.workerHung(worker, proof);
    this.#decode.workerHung(worker, proof);
  }

  workerLost(worker: Worker, detail: string): void {
    if (this.#plan === null) {
      this.#lost ??= { worker, detail };
      return;
    }
    this.#prefill.workerLost(worker, detail);
    this.#decode.workerLost(worker, detail);
  }

  get isBetweenEvents(): boolean {
    return this.#plan !== null && this.#answerer.isBetweenEvents;
  }

  // ---- AttemptRules, PairRules ----

  mayBegin(attempt: Attempt): boolean {
    return attempt === this.#prefill || this.#plan!.read === null || this.#isPrefilled;
  }

  errorStatus(head: ResponseHead, bytes: Buffer, start: number, end: number): number {
    let { status } = head;
    if (status < 400) status = head.isEventStream ? statusOfEvent(bytes, start, end, head.isChunked) : 0;
    else if (status >= 500 && end - start < Math.min(head.contentLength, MAX_EARLY_BYTES)) return INCOMPLETE;
    return status >= 500 && bytes.subarray(start, end).includes(ABORTED_IN_TRANSFER) ? ABORTED : status;
  }

  isAside(attempt: Attempt): boolean {
    return attempt !== this.#answerer;
  }

  rejects(attempt: Attempt, head: ResponseHead): boolean {
    // The client already gets the response of the decode engine.
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

  // ---- ResultListener ----

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
    // The decode engine responds, so it has the KV cache that it needs.
    if (attempt === this.#prefill && this.#decode.hasAnswer) {
      notes.failedAside(x, attempt.worker, result);
      return;
    }
    // The handover is still valid; only the connection to the decode engine was closed.
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
    const { read } = this.#plan!;
    if (read === null) {
      this.#handOver(prefill, null);
      return;
    }
    if (this.#prefilled.isTooLarge) {
      this.abort();
      const message = 'The response of the prefill engine is too large to be merged into that of the decode engine.';
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

  #handOver(prefill: Attempt, handover: PrefillRead, detail = 'nothing for the decode engine in its answer'): void {
    if (this.isOver) return;
    // The client already gets the decode engine's error, which waits for nothing.
    if (this.#plan!.read !== null && this.#decode.hasAnswer) return;
    if (handover !== null && 'aborted' in handover) return this.#passAborted(prefill, handover);
    if (this.#plan!.read !== null && handover === null) {
      this.abort();
      this.#parts.listener.ended(prefill, { kind: 'failed', failure: 'no_handover', detail });
      return;
    }
    this.#isPrefilled = true;
    this.#parts.notes.prefilled(prefill.x, prefill.worker);
    if (handover === null) return;
    const decode = this.#decode;
    if (handover.answerMerge !== null) {
      // The response has not begun: `mayBegin` waits for the handover.
      decode.sink = this.#parts.sinkFor(handover.answerMerge);
      decode.sink.source = decode;
    }
    this.#handed = handover.decode;
    if (this.#handed === null) decode.goOn();
    else decode.start(false, this.#handed);
  }

  /** The response of the prefill engine goes to the client, and the decode engine does nothing more. */
  #passAborted(prefill: Attempt, { aborted, isStream }: Aborted): void {
    const { x, listener } = this.#parts;
    const { sink } = this.#decode;
    this.#decode.abort();
    this.#answerer = prefill;
    const head = this.#prefilled.response!;
    head.setLength(aborted.length);
    if (isStream) {
      head.drop('content-type');
      head.add('content-type: text/event-stream; charset=utf-8\r\n');
      head.isEventStream = true;
    }
    x.answerBytes = aborted.length;
    x.usage = readUsage(aborted, 0, aborted.length, isStream, true);
    x.headGoesTo(sink);
    listener.began?.(prefill, head);
    sink.head(head);
    sendInParts(
      sink,
      aborted,
      () => !this.isOver,
      () =>
        sink.makeReady(() => {
          sink.end();
          this.isOver = true;
          listener.ended(prefill, COMPLETE);
        }),
    );
  }

  #otherThan(attempt: Attempt): Attempt {
    return attempt === this.#prefill ? this.#decode : this.#prefill;
  }
}

/** The status that nginx gives a request that its client ended: it is neither retried nor a fault of an engine. */
const ABORTED = 499;

/** A chunk line may come before the event. */
const ERROR_EVENT = /^(?:[\da-f]+[^\r\n]*\r\n)?data: ?(?=\{\s*"error"\s*:)/i;
const LOOKED_BYTES = 80;

/**
 * The status of the error event that a stream begins with. vLLM 0.32 and SGLang 0.5.23 send status 200 before the work, and the status of a
 * refusal or a failure with an event: the prompt is too long, or the KV cache can't be fetched because the prefill engine died.
 */
function statusOfEvent(bytes: Buffer, start: number, end: number, isChunked: boolean): number {
  const before = ERROR_EVENT.exec(bytes.toString('latin1', start, Math.min(end, start + LOOKED_BYTES)));
  if (before === null) return 0;
  const from = start + before[0].length;
  const event = Json.object(bytes, from, end);
  // A chunk ends with a line end, so more is to come.
  const isPart = event === null && isChunked && !bytes.subarray(from, end).includes(LF);
  if (isPart && end - start < MAX_EARLY_BYTES) return INCOMPLETE;
  const status = event === null ? null : errorOf(event);
  return status !== null && status >= 400 && status < 600 ? status : 500;
}
