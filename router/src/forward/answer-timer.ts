import { TimeLimit } from '../kit/time-limit.ts';

/** How long an engine may do nothing; 0: for ever. */
export interface AnswerTimeouts {
  /** While it takes no byte of a request body. */
  readonly requestMs: number;
  /** From the request sent to the first byte of its answer. */
  readonly firstByteMs: number;
  /** Between two reads of an answer. */
  readonly idleMs: number;
}

/** Watches one attempt's engine for silence. Made only where a limit is set. */
export class AnswerTimer {
  readonly #timeouts: AnswerTimeouts;
  readonly #expired: () => void;
  #limit: TimeLimit | null = null;
  #hasAnswer = false;
  #lastReadMs = 0;

  constructor(timeouts: AnswerTimeouts, expired: () => void) {
    this.#timeouts = timeouts;
    this.#expired = expired;
  }

  /** May come after the answer has begun: some engines answer before they have read the whole request. */
  requestSent(): void {
    if (this.#timeouts.firstByteMs > 0 && !this.#hasAnswer)
      this.#limit = new TimeLimit(this.#timeouts.firstByteMs, this.#expired);
  }

  answerBegan(): void {
    this.stop();
    this.#hasAnswer = true;
    this.#lastReadMs = performance.now();
    if (this.#timeouts.idleMs > 0) this.#limit = new TimeLimit(this.#timeouts.idleMs, this.#look);
  }

  /** Called at every read, so it only notes the time; the timer looks at it when it is due. */
  heard(): void {
    this.#lastReadMs = performance.now();
  }

  stop(): void {
    this.#limit?.clear();
    this.#limit = null;
  }

  readonly #look = (): void => {
    const leftMs = this.#lastReadMs + this.#timeouts.idleMs - performance.now();
    if (leftMs <= 0) this.#expired();
    else this.#limit = new TimeLimit(leftMs, this.#look);
  };
}
