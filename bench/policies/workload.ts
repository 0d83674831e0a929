// What the clients of a simulated fleet do: sessions of turns, known in full before the run starts.
import { BlockChain } from './block-hashes.ts';
import { hash32 } from '../../router/src/kit/hash.ts';

/**
 * A named piece of a prompt. Two prompts with the same segment have the same tokens before it too, so its `id` names
 * the whole prefix that ends with it.
 */
export interface Segment {
  /** Unique within a trace. */
  readonly id: number;
  readonly name: string;
  /** 32 bits of the name. */
  readonly hash: number;
  /** Length in tokens, at least 1. */
  readonly tokens: number;
}

export interface Turn {
  /** The whole prompt: shared prefix, earlier inputs and responses, this turn's input. */
  readonly prompt: readonly Segment[];
  /** The prompt and its response. */
  readonly answered: readonly Segment[];
  /** Tokens of the prompt. */
  readonly promptTokens: number;
  /** Tokens of the response. */
  readonly outputTokens: number;
  /** Seconds between the response and the client's next turn. */
  readonly delaySeconds: number;
}

export interface Session {
  readonly id: string;
  /** Sessions of one group have the same task, so their lengths are alike. */
  readonly group: string;
  /** Segments at the start of every prompt of the session. */
  readonly prefix: readonly Segment[];
  /** At least one. */
  readonly turns: readonly Turn[];
  /** When the first turn is sent, in seconds from the start of the run. */
  readonly startSeconds: number;
  /** Block hashes of the session's prompts, computed on demand. */
  readonly blocks: BlockChain;
}

/** Something that happens to the fleet. `pause` stops all engines; `resume` starts one with an empty prefix cache. */
export type FleetEvent =
  | { readonly atSeconds: number; readonly kind: 'fail' | 'up' | 'resume'; readonly engine: number }
  | { readonly atSeconds: number; readonly kind: 'pause' };

export interface Trace {
  readonly name: string;
  /** Those that begin at their `startSeconds`. */
  readonly sessions: readonly Session[];
  /** Events of engines that a smaller fleet lacks are left out. */
  readonly events: readonly FleetEvent[];
  /** More sessions begin when others end. Left out: the run lasts until the last of `sessions` has ended. */
  readonly stream?: Stream;
}

/** A run of fixed length in which clients keep opening sessions. Times in seconds. */
export interface Stream {
  readonly seconds: number;
  /** What happens before is not measured. */
  readonly warmUpSeconds: number;
  /** The trainer has new weights this often. */
  readonly weightsSeconds: number;
  /** Sessions that are open at a time, at most. */
  readonly slots: number;
  /** Sessions of a group. */
  readonly groupSize: number;
  /** The clients of one run. */
  clients(): Clients;
}

export interface Clients {
  /** The session has ended. @returns the sessions that begin now */
  ended(session: Session): readonly Session[];
}

/** A turn before its segments exist: tokens that the client adds (may be 0), tokens of the response, delay in s. */
export type TurnPlan = readonly [newTokens: number, outputTokens: number, delaySeconds: number];

/** The request of a turn as a router sees it. */
export interface Request {
  readonly id: number;
  readonly sessionId: string;
  readonly groupId: string;
  /** 0 for the first of its session. */
  readonly turn: number;
  readonly segments: readonly Segment[];
  /** Length of the prompt in tokens. */
  readonly promptTokens: number;
  /** When the client sent it, in seconds. */
  readonly arrivedAt: number;
  /** How often an engine failed it. */
  readonly retries: number;
  readonly blocks: BlockChain;
  // Not for a policy before the request has finished:
  readonly outputTokens: number;
  readonly answered: readonly Segment[];
  readonly isLastTurn: boolean;
}

/** Makes the segments and sessions of one trace. */
export class TraceBuilder {
  #nextId = 0;

  segment(name: string, tokens: number): Segment {
    return { id: this.#nextId++, name, hash: hash32(name), tokens };
  }

  session(start: Pick<Session, 'id' | 'group' | 'prefix' | 'startSeconds'>, plans: readonly TurnPlan[]): Session {
    let history = start.prefix;
    let tokens = history.reduce((sum, segment) => sum + segment.tokens, 0);
    const turns = plans.map(([newTokens, outputTokens, delaySeconds], index): Turn => {
      const prompt = newTokens > 0 ? [...history, this.segment(`${start.id}/u${index}`, newTokens)] : history;
      const answered = [...prompt, this.segment(`${start.id}/o${index}`, outputTokens)];
      const promptTokens = tokens + newTokens;
      history = answered;
      tokens = promptTokens + outputTokens;
      return { prompt, answered, promptTokens, outputTokens, delaySeconds };
    });
    return { ...start, turns, blocks: new BlockChain() };
  }
}
