import type { Exchange } from '../exchange.ts';
import type { Worker } from '../fleet/worker.ts';
import type { CoarseClock } from '../kit/clock.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import type { Failed, Result } from '../wire/result.ts';
import type { Sink } from '../wire/sink.ts';
import type { AnswerTimeouts } from './answer-timer.ts';
import type { Attempt } from './attempt.ts';
import type { ReadPace } from './read-pace.ts';

/** What the attempts of a router have in common. */
export interface AttemptContext {
  readonly clock: CoarseClock;
  /** How often event streams are read (`--stream-coalesce-ms`); null: as they come. */
  readonly pace: ReadPace | null;
  readonly answerTimeouts: AnswerTimeouts;
  readonly retries: RetryDecisions;
}

/** Decides, while an attempt can still fail, whether it does. */
export interface RetryDecisions {
  /** The engine responds with an error status. @returns true: the response is dropped, and another attempt follows */
  rejects(x: Exchange, worker: Worker, head: ResponseHead): boolean;
  /** The worker hangs, and no byte of a response came. @returns true: the attempt fails now; false: it goes on waiting */
  leavesHung(x: Exchange, worker: Worker): boolean;
}

/** The rules of an attempt whose response is not, or not alone, the exchange's: half of a pair, or one of several engines. */
export interface AttemptRules {
  /** The client does not get this response, and nothing of the exchange depends on it. */
  isAside(attempt: Attempt): boolean;
  /** As `RetryDecisions.rejects`. */
  rejects(attempt: Attempt, head: ResponseHead): boolean;
  /** Of a pair; left out: a response begins with its head. */
  readonly pair?: PairRules;
}

export interface PairRules {
  /** Whether the response of a decode engine may begin. Until then it is kept, and other workers can be tried. */
  mayBegin(attempt: Attempt): boolean;
  /** The status that an error counts as, also one that a stream with a good status begins with; 0: no error; `INCOMPLETE`: a part of it has come. */
  errorStatus(head: ResponseHead, bytes: Buffer, start: number, end: number): number;
}

/** A stage between an attempt and its retry. */
export interface AfterAttempt {
  /** @param make makes the sink of the response @returns it, or one around it, or that of an earlier attempt */
  sink(x: Exchange, make: () => Sink): Sink;
  /** @returns what the end of an attempt means */
  after(x: Exchange, result: Result): Result;
}

/** What a listener needs of an attempt. */
export type Leading = Pick<Attempt, 'x' | 'worker'>;

/** What the pipeline learns beside the results: of the first half of a pair. */
export interface PairNotes {
  /** The prefill engine has done its part. */
  readonly prefilled: (x: Exchange, worker: Worker) => void;
  /** The prefill engine failed after the decode engine had got what it needs. */
  readonly failedAside: (x: Exchange, worker: Worker, result: Failed) => void;
}
