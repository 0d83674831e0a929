import type { Members } from '../kit/json-edit.ts';
import type { Answer } from './delta.ts';
import type { Rules } from './join-rules.ts';

/** Where a dialect has what is read of its requests, and what engines take where a request does not say. */
export interface RequestForm {
  /** The member with ids. */
  readonly ids: string;
  /** The member with a text; null: prompts are ids only. */
  readonly text: string | null;
  /** The member with the sampling parameters; null: they are members of the body. */
  readonly params: string | null;
  /** The sampling parameters with the most and the least number of tokens. */
  readonly limit: string;
  readonly least: string;
  readonly defaultLimit: number;
  /** Members of a request for the ids of sampled tokens; null: every response has them. */
  readonly asksForIds: Members | null;
  /** Members that request scores of the prompt, with values that request none. */
  readonly promptScores: Members;
}

export type DialectName = 'generate' | 'completions' | 'inference';

/** What is known of one API of engines: its path, its requests and its responses. */
export interface Dialect {
  readonly name: DialectName;
  readonly path: string;
  readonly request: RequestForm;
  /** How the responses of two engines become that of one generation. */
  readonly joins: Rules;
  /** @param start of the JSON in `bytes`: a response, or the data of an event @returns null: it is no response of this API */
  read(bytes: Buffer, start: number): Answer | null;
}
