import { Exchange, type Failure, type Road } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { CoarseClock } from '../../kit/clock.ts';
import { BufferSink } from '../../wire/buffer-sink.ts';
import { RequestBody, RetryBudget } from '../../wire/request-body.ts';
import type { ResponseHead } from '../../wire/response-head.ts';
import type { AnswerTimeouts } from '../answer-timer.ts';
import type { AttemptOwner, CutCode } from '../attempt-owner.ts';
import { Attempt } from '../attempt.ts';

/** What one engine said to a control. */
export interface ControlAnswer {
  /** null: nothing came back. */
  readonly status: number | null;
  readonly body: Buffer;
  /** Why no answer, or not all of it, came; null: it is whole. */
  readonly error: string | null;
}

/** Engines say little about controls; a longer answer is left out of the report. */
const MAX_ANSWER_BYTES = 1_048_576;

/** Loading weights takes minutes: whoever waits sets the limit (`x-turnout-timeout`, `--request-timeout-secs`). */
const NO_LIMITS: AnswerTimeouts = { firstByteMs: 0, idleMs: 0 };

/** The exchange of one call hears nothing from outside: whoever asked watches the one that it is a part of. */
const NO_ROAD: Road = { clientLeft() {}, bodyRefused() {} };

/** One engine's part of a control that goes to several: the client's own head and body, on a connection of its own. */
export class ControlCall implements AttemptOwner {
  readonly coalescer = null;
  readonly answerTimeouts = NO_LIMITS;
  readonly clock: CoarseClock;
  readonly answer: Promise<ControlAnswer>;
  readonly #attempt: Attempt;
  readonly #sink = new BufferSink({ maxBytes: MAX_ANSWER_BYTES });
  #status: number | null = null;
  #resolve!: (answer: ControlAnswer) => void;

  /** `changed`: a body that plugins made for this worker; null: the client's. */
  constructor(x: Exchange, worker: Worker, changed: Buffer | null, clock: CoarseClock) {
    this.clock = clock;
    this.answer = new Promise((resolve) => {
      this.#resolve = resolve;
    });
    // The pieces are shared by all calls, each of which sends them at its engine's pace.
    const body = new RequestBody(new RetryBudget(Infinity), () => {});
    for (const piece of x.body.pieces) body.push(piece);
    body.finish();
    const part = new Exchange(NO_ROAD, x.head, body, this.#sink, performance.now());
    part.isRequestIdOurs = x.isRequestIdOurs;
    part.isForEngine = true;
    this.#attempt = new Attempt(part, worker, this.#sink, this);
    // A connection that was idle may be closed by now, and what steers is not said twice.
    this.#attempt.start(true, changed);
  }

  abort(): void {
    this.#attempt.abort();
    this.#end('given up');
  }

  leavesHung(): boolean {
    return false;
  }

  rejects(): boolean {
    return false;
  }

  onAnswerBegins(_: Attempt, head: ResponseHead): void {
    this.#status = head.status;
  }

  onFailed(_: Attempt, failure: Failure, detail: string): void {
    this.#end(failure === 'connect' ? `no connection: ${detail}` : `no answer: ${detail}`);
  }

  onComplete(): void {
    const { bytes, isTooLarge } = this.#sink;
    this.#end(isTooLarge ? `an answer of ${bytes} bytes is left out here` : null);
  }

  onCut(_: Attempt, _code: CutCode, detail: string): void {
    this.#status = null;
    this.#end(`the answer broke off: ${detail}`);
  }

  #end(error: string | null): void {
    this.#resolve({ status: this.#status, body: Buffer.concat(this.#sink.take()), error });
  }
}
