import type { Exchange } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { CoarseClock } from '../../kit/clock.ts';
import { BufferSink } from '../../wire/buffer-sink.ts';
import type { Result, ResultListener } from '../../wire/result.ts';
import type { AttemptContext, AttemptRules } from '../attempt-context.ts';
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

/** No time limits: loading weights takes minutes, and the client sets the limit (`x-turnout-timeout`, `--request-timeout-secs`). */
export const controlContext = (clock: CoarseClock): AttemptContext => ({
  clock,
  coalescer: null,
  answerTimeouts: { firstByteMs: 0, idleMs: 0 },
  retries: { rejects: () => false, leavesHung: () => false },
});

const rules: AttemptRules = { isAside: () => true, rejects: () => false };

/** One engine's part of a control request that goes to several: the client's head and body on a connection of its own. */
export class ControlCall implements ResultListener<Attempt> {
  readonly answer: Promise<ControlAnswer>;
  readonly #attempt: Attempt;
  readonly #sink = new BufferSink({ maxBytes: MAX_ANSWER_BYTES });
  #resolve!: (answer: ControlAnswer) => void;

  /** `changed`: a body that plugins made for this worker; null: the client's. */
  constructor(x: Exchange, worker: Worker, changed: Buffer | null, context: AttemptContext) {
    this.answer = new Promise((resolve) => {
      this.#resolve = resolve;
    });
    this.#attempt = new Attempt(x, worker, this.#sink, context, this, rules, x.body.shared());
    // A connection that was idle may be closed by now, and a control request is not sent twice.
    this.#attempt.start(true, changed);
  }

  abort(): void {
    this.#attempt.abort();
    this.#end('given up');
  }

  ended(_: Attempt, result: Result): void {
    if (result.kind === 'failed') {
      this.#end(`${result.failure === 'connect' ? 'no connection' : 'no answer'}: ${result.detail}`);
    } else if (result.kind === 'cut') this.#end(`the answer broke off: ${result.detail}`, null);
    else this.#end(this.#sink.isTooLarge ? `an answer of ${this.#sink.bytes} bytes is left out here` : null);
  }

  #end(error: string | null, status: number | null = this.#sink.response?.status ?? null): void {
    this.#resolve({ status, body: Buffer.concat(this.#sink.take()), error });
  }
}
