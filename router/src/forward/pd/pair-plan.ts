import type { Worker } from '../../fleet/worker.ts';
import { RouterError } from '../../kit/errors.ts';
import type { AnswerMerge } from '../answer-merge.ts';

/** The bodies with which the two engines of a pair serve one request. */
export interface PairPlan {
  readonly prefill: Buffer;
  /** null: it is made from the response of the prefill engine, so the decode engine gets its request after that. */
  readonly decode: Buffer | null;
  /**
   * Reads the response of the prefill engine; the response of the decode engine does not begin before that. null: it is not needed.
   * A response larger than `LARGE_BYTES` is transferred to the body thread.
   * @returns null: what the decode engine needs is not in it
   */
  readonly read: ((answer: Buffer, isEventStream: boolean) => PrefillRead | Promise<PrefillRead>) | null;
}

export type PrefillRead = Handover | Aborted | null;

/** The request was aborted at the prefill engine, as somebody requested: no engine gets it again. */
export interface Aborted {
  /** The response, which says so. */
  readonly aborted: Buffer;
  readonly isStream: boolean;
}

/** What was read from the response of a prefill engine. */
export interface Handover {
  /** The body for a decode engine that waits for it. */
  readonly decode: Buffer | null;
  /** Adds what only the prefill engine knows to the response; null: there is nothing to add. */
  readonly answerMerge: AnswerMerge | null;
}

/** How engines of one kind are paired. */
export interface PairStyle {
  /**
   * True: one decode engine serves this request as well as a pair, or better. Left out: never. A body larger than `LARGE_BYTES` is
   * transferred to the body thread, by `plan` too.
   */
  isForOne?(path: string, body: Buffer): boolean | Promise<boolean>;
  plan(path: string, body: Buffer, prefill: Worker): Planned | Promise<Planned>;
}

/** An error: what is wrong with the request. A string: why this prefill engine can't be used. */
export type Planned = PairPlan | RouterError | string;

export const noObject = (): RouterError =>
  new RouterError('bad_request', 'A prefill/decode pair needs a JSON object as the request body.');
