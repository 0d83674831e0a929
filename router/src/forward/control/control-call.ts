import type { Exchange } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { CoarseClock } from '../../kit/clock.ts';
import { BufferSink } from '../../wire/buffer-sink.ts';
import type { RequestBody } from '../../wire/request-body.ts';
import type { ResponseHead } from '../../wire/response-head.ts';
import type { Result, ResultListener } from '../../wire/result.ts';
import type { Sink } from '../../wire/sink.ts';
import type { AttemptContext, AttemptRules, Leading } from '../attempt-context.ts';
import { Attempt } from '../attempt.ts';

/** The response of one engine to a control request. */
export interface ControlAnswer {
  /** null: no response came. */
  readonly status: number | null;
  readonly body: Buffer;
  /** Why the response is missing or incomplete; null: it is complete. */
  readonly error: string | null;
}

/** Responses to control requests are short; a longer one is left out of the report. */
const MAX_ANSWER_BYTES = 1_048_576;

/** No time limits: loading weights takes minutes, and the client sets the limit (`x-turnout-timeout`, `--request-timeout-secs`). */
export const controlContext = (clock: CoarseClock): AttemptContext => ({
  clock,
  pace: null,
  answerTimeouts: { requestMs: 0, firstByteMs: 0, idleMs: 0 },
  retries: { rejects: () => false, leavesHung: () => false },
});

const rules: AttemptRules = { isAside: () => true, rejects: () => false };

/** The client gets the response of this engine. */
export interface PassedOn {
  readonly sink: Sink;
  readonly listener: ResultListener<Leading>;
}

/** One engine's part of a control request: the client's head and body on a connection of its own. */
export class ControlCall implements ResultListener<Attempt> {
  /** null: the attempt has not ended, or was aborted. */
  result: Result | null = null;
  readonly #attempt: Attempt;
  readonly #kept = new BufferSink({ maxBytes: MAX_ANSWER_BYTES });
  readonly #passedOn: PassedOn | null;
  #status: number | null = null;
  readonly #ended = Promise.withResolvers<ControlAnswer>();

  /**
   * @param changed a body that plugins made for this worker; null: the client's
   * @param passedOn null: the response is kept for a report
   */
  constructor(
    x: Exchange,
    worker: Worker,
    changed: Buffer | null,
    body: RequestBody,
    context: AttemptContext,
    passedOn: PassedOn | null,
  ) {
    this.#passedOn = passedOn;
    const sink = passedOn?.sink ?? this.#kept;
    this.#attempt = new Attempt(x, worker, sink, context, this, passedOn === null ? rules : null, body);
    // A connection that was idle may be closed by now, and a control request is not sent twice.
    this.#attempt.start(true, changed);
  }

  get answer(): Promise<ControlAnswer> {
    return this.#ended.promise;
  }

  abort(): void {
    this.#attempt.abort();
    this.#end('given up');
  }

  began(attempt: Attempt, head: ResponseHead): void {
    this.#status = head.status;
    this.#passedOn?.listener.began?.(attempt, head);
  }

  ended(_: Attempt, result: Result): void {
    this.result = result;
    if (result.kind === 'failed') {
      this.#end(`${result.failure === 'connect' ? 'no connection' : 'no answer'}: ${result.detail}`);
    } else if (result.kind === 'cut') this.#end(`the answer broke off: ${result.detail}`, null);
    else this.#end(this.#kept.isTooLarge ? `an answer of ${this.#kept.bytes} bytes is left out here` : null);
  }

  #end(error: string | null, status = this.#kept.response?.status ?? this.#status): void {
    this.#ended.resolve({ status, body: Buffer.concat(this.#kept.take()), error });
  }
}
