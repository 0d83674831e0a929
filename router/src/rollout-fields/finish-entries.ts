import type { TopTokens } from '../generation/delta.ts';
import type { Entry } from './entries.ts';
import { type RawObject, NULL, jsonOf, membersOf, toJson, writeList, writeObject } from './raw-json.ts';

/** What is added to entries. */
export interface EntryRules {
  /** Which of the two kinds of logprobs the engines return. */
  readonly logprobs: 'raw' | 'processed' | 'unknown';
  /** Both kinds are equal. */
  readonly isFullDistribution: boolean;
}

/** What is known of one token, beside its entry. */
export interface TokenFacts {
  readonly id: number;
  /** Its place in the sequence. */
  readonly position: number;
  /** It was sampled; else it is of the prompt. */
  readonly isSampled: boolean;
  /** Where its text begins in the text that is returned, in characters. */
  readonly offset: number;
  /** null: none is wanted. */
  readonly matrix: string | null;
  /** The likeliest tokens with their ids, in the order of the entry's; null: their ids are not known. */
  readonly alternatives: TopTokens | null;
}

/** The entry as the client gets it. */
export function finishedEntry({ members }: Entry, facts: TokenFacts, rules: EntryRules): RawObject {
  const made: RawObject = new Map(members);
  const logprob = made.get('logprob') ?? NULL;
  const isKnown = rules.isFullDistribution || !facts.isSampled;
  made.set('token_id', toJson(facts.id));
  // Before the first token there is nothing that could give it a probability; clients take no null here.
  if (logprob.equals(NULL) && facts.position === 0) made.set('logprob', ZERO);
  if (rules.logprobs === 'processed' && !isKnown) made.set('logprob', NULL);
  const hasSampling = facts.isSampled && (rules.isFullDistribution || rules.logprobs === 'processed');
  made.set('sampling_logprob', hasSampling ? logprob : NULL);
  made.set('text_offset', toJson(facts.offset));
  if (facts.alternatives !== null) made.set('top_logprobs', withIds(made.get('top_logprobs'), facts.alternatives));
  if (facts.matrix !== null) made.set('routing_matrix', toJson(facts.matrix));
  return made;
}

function withIds(top: Buffer = NULL, alternatives: TopTokens): Buffer {
  const items = jsonOf(top).items();
  return writeList(
    items.map((json, i) => {
      const id = alternatives[i]?.[1] ?? null;
      return id === null ? json.raw() : writeObject(membersOf(json).set('token_id', toJson(id)));
    }),
  );
}

const ZERO = Buffer.from('0');
