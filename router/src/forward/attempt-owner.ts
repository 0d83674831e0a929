import type { Failure } from '../exchange.ts';
import type { CoarseClock } from '../kit/clock.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import type { AnswerTimeouts } from './answer-timer.ts';
import type { Attempt } from './attempt.ts';

/** Who started an attempt and hears how it goes. Exactly one of the three ends is called, once. */
export interface AttemptOwner {
  readonly clock: CoarseClock;
  readonly coalescer: { push(attempt: Attempt): void } | null;
  readonly answerTimeouts: AnswerTimeouts;
  /** Asked about an answer with an error status: true: throw it away, the owner goes on elsewhere. */
  rejects(attempt: Attempt, head: ResponseHead): boolean;
  /** Asked where the worker hangs and no byte of an answer came: true: the attempt fails now; false: it goes on waiting. */
  leavesHung(attempt: Attempt): boolean;
  onAnswerBegins(attempt: Attempt, head: ResponseHead): void;
  /** Before an answer was passed on. */
  onFailed(attempt: Attempt, failure: Failure, detail: string): void;
  onComplete(attempt: Attempt): void;
  onCut(attempt: Attempt, code: CutCode, detail: string): void;
}

/** Why an answer broke off. */
export type CutCode = 'upstream_reset' | 'stream_idle_timeout' | 'engine_hung';

/** Part of a pair: when its answer may begin, and whether it is the one that the client gets. */
export interface PairRules {
  /** The answer of a decode engine: what came of it is kept until then, and others can be tried still. */
  mayBegin(attempt: Attempt): boolean;
  /** True: these bytes, which a stream under a good status begins with, say that it failed. */
  isFailure(bytes: Buffer, start: number, end: number): boolean;
  /** True: nobody gets this answer, so nothing of the exchange hangs on it. */
  isAside(attempt: Attempt): boolean;
}
