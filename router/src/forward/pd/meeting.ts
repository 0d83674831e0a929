import type { Worker } from '../../fleet/worker.ts';
import type { RouterError } from '../../kit/errors.ts';
import type { Merging } from '../merging.ts';

/** How the two engines of a pair come together for one request. */
export interface Meeting {
  readonly prefill: Buffer;
  /** null: it is made of the prefill engine's answer, which has to come first. */
  readonly decode: Buffer | null;
  /**
   * Reads the prefill engine's answer: the decode engine's waits for that. null: nobody needs it. One that is larger than
   * `LARGE_BYTES` is given away.
   * @returns null: what the decode engine needs is not in it
   */
  readonly read: ((answer: Buffer, isEventStream: boolean) => Handover | null | Promise<Handover | null>) | null;
}

/** What came of a prefill engine's answer. */
export interface Handover {
  /** The decode engine's body, where it waited for this. */
  readonly decode: Buffer | null;
  /** Puts what only the prefill engine knows into the answer; null: there is nothing of that. */
  readonly merging: Merging | null;
}

/** The ways of one kind of engines. */
export interface PairStyle {
  /**
   * True: a decode engine serves this request alone, as well as a pair or better. Left out: never. A body that is larger than
   * `LARGE_BYTES` is given away, to this and to `meet`.
   */
  isForOne?(path: string, body: Buffer): boolean | Promise<boolean>;
  /** @returns what is wrong with the request; in words, why this prefill engine can't be met */
  meet(path: string, body: Buffer, prefill: Worker): Met | Promise<Met>;
}

export type Met = Meeting | RouterError | string;
