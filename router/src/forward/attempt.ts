import { readUsage, withEarlier } from '../engines/usage.ts';
import type { Exchange } from '../exchange.ts';
import type { Worker } from '../fleet/worker.ts';
import { monotonicMs } from '../kit/clock.ts';
import { BAD, INCOMPLETE } from '../wire/fields.ts';
import type { RequestBody } from '../wire/request-body.ts';
import { ResponseHead } from '../wire/response-head.ts';
import { COMPLETE, type CutCode, type Failure, type ResultListener } from '../wire/result.ts';
import type { Sink, Source } from '../wire/sink.ts';
import { BROKEN, type UpstreamConnection, type UpstreamUser } from '../wire/upstream-pool.ts';
import { AnswerBody, MALFORMED, UNFINISHED, isWhole } from './answer-body.ts';
import { AnswerTimer } from './answer-timer.ts';
import type { AttemptContext, AttemptRules, PairRules } from './attempt-context.ts';
import { upstreamHead } from './headers.ts';
import { PacedReads } from './paced-reads.ts';
import { RequestOut } from './request-out.ts';

/** Bodies up to this size go out with the head in one write. */
const SMALL_BYTES = 16_384;
/** 1xx responses before the final one; more is a flood (some engines and proxies send 102 while they work). */
const MAX_INTERIM = 10_000;
/** Of a response that may not begin yet so much is read, because only reading shows that its connection broke. */
export const MAX_EARLY_BYTES = 16_384;

/** Why an attempt does not begin whose worker was removed by force. */
export const REMOVED = 'the worker was removed';

/** An attempt at one worker: sends the request and passes the response to the sink as it comes. */
export class Attempt implements UpstreamUser, Source {
  readonly x: Exchange;
  readonly worker: Worker;
  sink: Sink;
  /** True once the head of a response was passed on: no retry is possible. */
  hasAnswer = false;
  /** The attempt no longer uses the connection. */
  isOver = false;
  readonly #context: AttemptContext;
  readonly #listener: ResultListener<Attempt>;
  readonly #rules: AttemptRules | null;
  readonly #requestBody: RequestBody;
  /** Set by `start`. */
  #connection!: UpstreamConnection;
  #isStarted = false;
  /** Why its worker was lost before the start; null: it was not. */
  #lost: string | null = null;
  #head: ResponseHead | null = null;
  /** The received part of an incomplete head, or of a response that may not begin yet. */
  #partial: Buffer | null = null;
  #isHeadWhole = false;
  /** The engine ended the connection after a whole response that may not begin yet. */
  #hasEnded = false;
  #interim = 0;
  /** null: the response has not begun. */
  #body: AnswerBody | null = null;
  /** null: the request was sent in one write. */
  #request: RequestOut | null = null;
  #isSinkFull = false;
  /** null: the response is no event stream, or its reads are never delayed. */
  #paced: PacedReads | null = null;
  #timer: AnswerTimer | null = null;

  constructor(
    x: Exchange,
    worker: Worker,
    sink: Sink,
    context: AttemptContext,
    listener: ResultListener<Attempt>,
    rules: AttemptRules | null = null,
    requestBody: RequestBody = x.body,
  ) {
    this.x = x;
    this.worker = worker;
    this.sink = sink;
    this.#context = context;
    this.#listener = listener;
    this.#rules = rules;
    this.#requestBody = requestBody;
  }

  /** Sends the request. `changed`: a body that a plugin made, in place of the client's. */
  start(isFresh: boolean, changed: Buffer | null): void {
    const { x, worker } = this;
    const body = this.#requestBody;
    if (worker.pool.isBroken) this.#lost = REMOVED;
    if (this.#lost !== null) {
      this.#leave();
      // No engine got the request.
      return this.#listener.ended(this, { kind: 'failed', failure: 'connect', detail: this.#lost });
    }
    this.#isStarted = true;
    x.sentMs = monotonicMs();
    this.#connection = worker.pool.acquire(this, isFresh, x.sentMs);
    this.sink.source = this;
    const { answerTimeouts } = this.#context;
    if (answerTimeouts.firstByteMs > 0 || answerTimeouts.idleMs > 0) {
      this.#timer = new AnswerTimer(answerTimeouts, this.#onSilence);
    }
    const isSmall = changed === null ? body.isComplete && body.bytes <= SMALL_BYTES : changed.length <= SMALL_BYTES;
    const isLengthNew = changed !== null || (body.isComplete && x.head.isChunked);
    const head = upstreamHead(x, worker, isLengthNew ? (changed?.length ?? body.bytes) : -1);
    if (isSmall) {
      const pieces = changed === null ? body.pieces : [changed];
      this.#connection.out.sendMessage(head, pieces, changed?.length ?? body.bytes);
      this.#timer?.requestSent();
    } else {
      this.#request = new RequestOut(x.head.isChunked && !isLengthNew, body, this.#connection, {
        stallMs: answerTimeouts.requestMs,
        onStalled: this.#onStalled,
        onSent: () => this.#timer?.requestSent(),
      });
      this.#request.start(head, changed);
    }
  }

  /** Stops at once, without a result; the engine sees its connection close and stops generating. */
  abort(): void {
    if (this.isOver) return;
    this.#leave();
    if (this.#isStarted) this.#connection.destroy();
  }

  /** Its worker was proven to hang. */
  workerHung(worker: Worker, proof: string): void {
    if (this.isOver || !this.#isStarted || worker !== this.worker) return;
    if (this.hasAnswer) this.#cut(proof, 'engine_hung');
    else if (this.#isInHead) this.#fail('cut_head', proof);
    else if (this.#context.retries.leavesHung(this.x, this.worker)) this.#fail('hung', proof);
  }

  workerLost(worker: Worker, detail: string): void {
    if (this.isOver || worker !== this.worker) return;
    if (!this.#isStarted) this.#lost = detail;
    else if (this.hasAnswer) this.#cut(detail);
    else this.#fail(this.#isInHead ? 'cut_head' : 'reset', detail);
  }

  onDrain(): void {
    this.#request?.onDrain();
  }

  /** A part of the head has arrived, so the engine has done the work; interim responses (1xx) do not show that. */
  get #isInHead(): boolean {
    return !this.#isHeadWhole && this.#partial !== null && this.#partial.length > 0;
  }

  get #isRequestSent(): boolean {
    return this.#request === null || this.#request.isSent;
  }

  /** The sink has room again. */
  resume(): void {
    this.#isSinkFull = false;
    this.#timer?.heard();
    if (!this.isOver) this.#connection.resume();
  }

  /** The delay of a read is over. */
  #readOn(): void {
    if (this.isOver || this.#isSinkFull) return;
    this.#timer?.heard();
    this.#connection.resumeGathered();
  }

  onBytes(bytes: Buffer, count: number): boolean {
    this.#timer?.heard();
    const { nowMs } = this.#context.clock;
    this.worker.lastReadMs = nowMs;
    this.x.lastByteMs = nowMs;
    if (this.#head !== null) return this.#relay(bytes, 0, count);
    let all = bytes;
    let end = count;
    if (this.#partial !== null) {
      all = Buffer.concat([this.#partial, bytes.subarray(0, count)]);
      end = all.length;
    }
    let start = 0;
    for (;;) {
      const head = new ResponseHead();
      const next = head.read(all, start, end);
      if (next === INCOMPLETE) {
        this.#partial = Buffer.from(all.subarray(start, end));
        return true;
      }
      if (next === BAD || head.status === 101 || ++this.#interim > MAX_INTERIM) {
        this.#fail('bad_answer', head.refusal === '' ? `an unexpected ${head.status}` : head.refusal);
        return true;
      }
      if (head.status >= 200) {
        this.#partial = null;
        const pair = this.#rules?.pair;
        if (pair !== undefined) {
          const status = pair.errorStatus(head, all, next, end);
          if (status > 0) head.status = status;
          else if (!this.#mayBegin(pair, head, status === INCOMPLETE ? 0 : end - next)) {
            this.#partial = Buffer.from(all.subarray(start, end));
            return end - next < MAX_EARLY_BYTES;
          }
        }
        if (head.status >= 400 && this.#isRejected(head)) {
          this.#reject(head, end - next);
          return true;
        }
        this.#begin(head);
        return this.isOver || this.#relay(all, next, end);
      }
      // 1xx are for this hop (RFC 9110 section 15.2): the client's own 100 was sent when it asked for it.
      start = next;
    }
  }

  /** An engine of a pair sends the head of a stream at once and may fail before its first event: the response begins with that event. */
  #mayBegin(pair: PairRules, head: ResponseHead, bodyBytes: number): boolean {
    this.#isHeadWhole = true;
    const isEmpty = head.hasNoBody(this.x.head.method) || head.contentLength === 0;
    return (bodyBytes > 0 || isEmpty) && pair.mayBegin(this);
  }

  /** The response may begin now (`PairRules.mayBegin`). */
  goOn(): void {
    if (this.isOver || this.hasAnswer || this.#partial === null) return;
    const partial = this.#partial;
    this.#partial = null;
    // Also if the response is complete now: its connection is in the pool, and the next attempt must be able to read.
    const connection = this.#connection;
    if (this.onBytes(partial, partial.length)) connection.resume();
    if (this.#hasEnded) this.onGone(null);
  }

  #isRejected(head: ResponseHead): boolean {
    return this.#rules?.rejects(this, head) ?? this.#context.retries.rejects(this.x, this.worker, head);
  }

  /** Drops the response. @param bodyBytes bytes of its body that came with the head */
  #reject(head: ResponseHead, bodyBytes: number): void {
    const connection = this.#connection;
    const isOver = head.contentLength === bodyBytes && this.#isRequestSent && !head.isLast && connection.isUsable;
    this.#leave();
    if (isOver) this.worker.pool.release(connection, this.#context.clock.nowMs);
    else connection.destroy();
    this.#listener.ended(this, { kind: 'failed', failure: 'status', detail: String(head.status) });
  }

  #begin(head: ResponseHead): void {
    this.#head = head;
    this.hasAnswer = true;
    this.#timer?.answerBegan();
    if (head.isEventStream) {
      this.worker.openStreams++;
      const { pace } = this.#context;
      if (pace !== null) this.#paced = new PacedReads(pace, () => this.#readOn());
    }
    if (this.#rules?.isAside(this) === true) return this.#relayFrom(head);
    this.x.headGoesTo(this.sink);
    const isSent = this.#isRequestSent && !this.#connection.hasUnsent;
    // No retry is possible, so the body is not needed any more. Plugins may have kept a part of it.
    if (isSent && this.x.plugins.isEmpty) this.x.body.free();
    else this.x.body.release();
    this.#listener.began?.(this, head);
    this.#relayFrom(head);
  }

  #relayFrom(head: ResponseHead): void {
    this.#body = new AnswerBody(head, this.x.head.method, this.sink);
    this.sink.head(head);
  }

  #relay(bytes: Buffer, start: number, end: number): boolean {
    const { x } = this;
    if (end > start && this.#rules?.isAside(this) !== true) {
      x.answerBytes += end - start;
      // The head came in the same read.
      if (x.answerReads++ === 0) x.firstTokenMs = x.firstByteMs === x.lastByteMs ? x.firstByteMs : monotonicMs();
    }
    const body = this.#body!;
    const surplus = body.read(bytes, start, end);
    if (surplus === MALFORMED) {
      this.#cut(body.refusal);
      return true;
    }
    // A plugin that failed on these bytes has ended the attempt.
    if (this.isOver) return true;
    const isLast = surplus !== UNFINISHED;
    if (x.isGeneration && end > start && this.#rules?.isAside(this) !== true) {
      const bodyEnd = isLast ? end - surplus : end;
      x.usage = withEarlier(readUsage(bytes, start, bodyEnd, this.#head!.isEventStream, isLast), x.usage);
    }
    if (isLast) {
      this.#complete(surplus);
      return true;
    }
    if (!this.sink.flush() && !this.#readsOn(end - start)) {
      this.#isSinkFull = true;
      return false;
    }
    return this.#paced === null || x.readOnBytes > 0 || !this.#paced.delaysNext(bytes, start, end, body.chunks);
  }

  /** @param count bytes that were read although the sink is full */
  #readsOn(count: number): boolean {
    this.x.readOnBytes = Math.max(0, this.x.readOnBytes - count);
    return this.x.readOnBytes > 0;
  }

  #complete(surplus: number): void {
    const connection = this.#connection;
    const isReusable = this.#isRequestSent && surplus === 0 && !this.#head!.isLast;
    this.#leave();
    if (isReusable) this.worker.pool.release(connection, this.#context.clock.nowMs);
    else connection.destroy();
    this.#end();
  }

  #end(): void {
    const { x } = this;
    // The only read of a response has its first and its last byte.
    x.lastByteMs = (x.answerReads === 1 ? x.firstTokenMs : null) ?? monotonicMs();
    this.sink.makeReady(() => {
      this.sink.end();
      this.#listener.ended(this, COMPLETE);
    });
  }

  onGone(error: NodeJS.ErrnoException | null): void {
    if (this.isOver) return;
    const connection = this.#connection;
    if (this.hasAnswer) {
      if (this.#body!.isUntilClose && error === null) {
        this.#leave();
        this.#end();
      } else this.#cut(error?.code ?? 'closed early');
      return;
    }
    if (error === null && this.#isHeadWhole && !this.#hasEnded && isWhole(this.#partial!, this.x.head.method)) {
      this.#hasEnded = true;
      return;
    }
    const detail = error?.code ?? 'closed without an answer';
    if (!connection.isConnected) this.#fail('connect', detail);
    else if (connection.isStale && error !== BROKEN) this.#fail('stale', detail);
    else this.#fail(this.#isInHead ? 'cut_head' : 'reset', detail);
  }

  readonly #onSilence = (): void => {
    if (this.isOver) return;
    const { firstByteMs, idleMs } = this.#context.answerTimeouts;
    // The time counts again from now: the weights of the engine are being replaced.
    if (this.worker.isInSwap) {
      if (this.hasAnswer) this.#timer?.answerBegan();
      else this.#timer?.requestSent();
    } else if (!this.hasAnswer) this.#fail('first_byte_timeout', `no response within ${firstByteMs / 1000} s`);
    // The client does not read, or the next read is delayed, so the engine waits.
    else if (this.#isSinkFull || this.#paced?.isDelayed === true) this.#timer?.answerBegan();
    else this.#cut(`silent for ${idleMs / 1000} s`, 'stream_idle_timeout');
  };

  readonly #onStalled = (): boolean => {
    if (this.isOver || this.worker.isInSwap) return this.isOver;
    const detail = 'it takes no byte of the request';
    if (this.hasAnswer) this.#cut(detail);
    else this.#fail('reset', detail);
    return true;
  };

  #fail(failure: Failure, detail: string): void {
    this.#leave();
    this.#connection.destroy();
    this.#listener.ended(this, { kind: 'failed', failure, detail });
  }

  /** Ends the response so that the client sees that it is truncated. */
  #cut(detail: string, code: CutCode = 'upstream_reset'): void {
    this.#leave();
    this.#connection.destroy();
    this.sink.whenPassed(() => this.#listener.ended(this, { kind: 'cut', code, detail }));
  }

  /** True between two events of a stream: the router may insert an error event. */
  get isBetweenEvents(): boolean {
    if (this.sink.hasUnsent) return false;
    // The response is that of earlier attempts, in whole events. An engine that should continue it may refuse.
    if (this.#head === null || this.#head.status !== this.x.status) return this.x.isStream;
    return this.#head.isEventStream && this.#body?.isBetweenEvents === true;
  }

  #leave(): void {
    this.isOver = true;
    this.#timer?.stop();
    this.#request?.stop();
    if (this.#head?.isEventStream === true) this.worker.openStreams--;
    this.#requestBody.detach();
    if (this.sink.source === this) this.sink.source = null;
  }
}
