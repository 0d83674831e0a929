import type { SimOptions } from '../../../simulator/src/sim-options.ts';

/** What an engine did for one request: its own log. */
export interface Generated {
  /** The name that the client gave its call. */
  readonly call: string;
  readonly engineUrl: string;
  readonly kind: SimOptions['kind'];
  readonly inputIds: readonly number[];
  readonly outputIds: readonly number[];
  readonly logprobs: readonly number[];
  /** The engine's label of its weights, for each output token. */
  readonly versions: readonly string[];
  readonly finish: 'stop' | 'length' | 'abort';
  /** The engine was killed in the middle of it. */
  readonly isTorn: boolean;
}

/** How a call ended for its client. */
export type Ending =
  /** With all of the answer. */
  | 'whole'
  /** The client went on at the event with the finish reason. */
  | 'raced'
  /** The client closed its connection before the answer was complete. */
  | 'left'
  /** The answer broke off. */
  | 'broken'
  /** No answer began. */
  | 'refused';

/** What a client did, and what it got. */
export interface Call {
  readonly name: string;
  /** '': its client named none. */
  readonly session: string;
  /** The call whose answer its prompt goes on from. */
  readonly parent: Call | null;
  /** It goes on from all that its client got of that answer, not only from a beginning of it. */
  readonly isFull: boolean;
  /** That beginning ends within a letter: it has U+FFFD where the answer has that letter. */
  readonly endsInToken: boolean;
  readonly isChat: boolean;
  readonly isStream: boolean;
  readonly asksLogprobs: boolean;
  /** The chat has what makes the engine render it by itself, or a history that the template rewrites. */
  readonly isRerendered: boolean;
  /** It closes its connection at the finish reason. */
  readonly leavesAtFinish: boolean;
  /** All that its client has in the end: what another call that ended with the same can't be told from. */
  text: string;
  /** Tokens of the answer that its client got. */
  got: number;
  finish: string;
  ending: Ending;
  /** Moments, counted. */
  readonly sentAt: number;
  endedAt: number;
  /** By the clock. */
  endedMs: number;
}

/** What clients did, and what engines did for them: what an export is compared with. */
export class Journal {
  readonly calls = new Map<string, Call>();
  readonly generated: Generated[] = [];
  /** Moments at which the router was killed. */
  readonly routerDeaths: number[] = [];
  /** Engines that got new weights, or were killed, and when. */
  readonly changes: { readonly engineUrl: string; readonly atMs: number }[] = [];
  #moment = 0;

  now(): number {
    return ++this.#moment;
  }
}

export interface RowTurn {
  readonly id: string;
  readonly parent: string | null;
  readonly keeps: number;
  readonly index: number;
  readonly worker: string;
  readonly tokens: number;
  readonly prompt_tokens: number;
  readonly output_tokens: number;
  readonly finish_reason: string | null;
  readonly drift: { readonly kind: string; readonly at: number } | null;
  readonly ambiguous: boolean;
  readonly sampled: readonly number[];
}

/** A trajectory of an export in JSON. */
export interface Row {
  readonly id: string;
  readonly session: string;
  readonly tokens: readonly number[];
  readonly loss_mask: readonly number[];
  readonly rollout_log_probs: readonly (number | null)[];
  readonly versions: readonly { readonly version: string | null; readonly from: number; readonly to: number }[];
  readonly ambiguous: boolean;
  readonly turns: readonly RowTurn[];
}

export const readRows = (jsonl: string): Row[] =>
  jsonl
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Row);
