/**
 * The "model": a probability distribution over the next token that is a pure function of seed and context. Word r of a
 * pseudo-random order has probability (1 - 1/mean) * p * (1-p)^r, the end of the turn has 1/mean. It is memoryless, so
 * a generation that is resumed from its own tokens continues as it would have.
 */

import { finish, mix, mixText, unit } from './mix.ts';
import { endOfTurn, firstWord } from '../tokens/tokenizer.ts';
import { words } from '../tokens/words.ts';

/** Logprobs never fall below this, as real engines' bf16 logits rarely do. */
const lowestLogprob = -30;

export interface SamplingChoice {
  /** 0 takes the most likely word. */
  temperature: number;
  /** Ranks below this only; 0 or less means all. */
  topK: number;
  /** Distinguishes samples of one context if temperature > 0. */
  sampleSeed: number;
}

export interface TokenLogprob {
  id: number;
  logprob: number;
}

/** The context before the first token, independent of seed and weights: new weights change the very next token. */
const emptyContext = 0x5bd1e995;

/** The context after one more token. */
export function readToken(context: number, id: number): number {
  return mix(context, id);
}

export function contextOf(ids: readonly number[]): number {
  let context = emptyContext;
  for (let i = 0; i < ids.length; i += 1) context = mix(context, ids[i]!);
  return context;
}

export class Sampler {
  readonly #seed: number;
  readonly #endChance: number;
  /** The words it may emit; without drift only ' word' pieces, whose text is tokenised to the same ids. */
  readonly #range: number;

  constructor(seed: number, meanOutputTokens: number, retokenizationDrift: boolean, weights = '') {
    this.#seed = mixText(mix(emptyContext, seed), weights);
    this.#endChance = meanOutputTokens > 0 ? 1 / meanOutputTokens : 0;
    this.#range = retokenizationDrift ? 2 * words.length : words.length;
  }

  /** The state from which all draws and logprobs of the next token are computed, by weights and context. */
  view(context: number): number {
    return mix(context, this.#seed);
  }

  choose(view: number, choice: SamplingChoice, mayEnd: boolean): number {
    const greedy = choice.temperature <= 0 || choice.topK === 1;
    const draw = greedy ? view : mix(view, choice.sampleSeed);
    if (mayEnd && unit(draw ^ 0x2545f491) < this.#endChance) return endOfTurn;
    let rank = 0;
    if (!greedy) {
      const ratio = Math.pow(1 - peak(view), 1 / choice.temperature);
      rank = Math.floor(Math.log(1 - unit(draw ^ 0x3c6ef372)) / Math.log(ratio));
      const limit = choice.topK > 0 ? Math.min(choice.topK, this.#range) : this.#range;
      if (!(rank < limit)) rank = limit - 1;
    }
    return this.#word(view, rank);
  }

  logprob(view: number, id: number): number {
    if (id === endOfTurn) return this.#endChance > 0 ? Math.log(this.#endChance) : lowestLogprob;
    const rank = this.#rank(view, id);
    return rank === null ? lowestLogprob : this.#rankLogprob(view, rank);
  }

  /** 1 for the likeliest word. What is not a word comes after all words. */
  rank(view: number, id: number): number {
    return (this.#rank(view, id) ?? this.#range) + 1;
  }

  /** The `count` most likely words, best first. */
  top(view: number, count: number): TokenLogprob[] {
    return Array.from({ length: Math.min(count, this.#range) }, (_, rank) => ({
      id: this.#word(view, rank),
      logprob: this.#rankLogprob(view, rank),
    }));
  }

  #rank(view: number, id: number): number | null {
    const offset = id - firstWord;
    if (offset < 0 || offset >= this.#range) return null;
    const first = this.#word(view, 0) - firstWord;
    return (offset - first + this.#range) % this.#range;
  }

  #word(view: number, rank: number): number {
    return firstWord + ((finish(view ^ 0x1b873593) + rank) % this.#range);
  }

  #rankLogprob(view: number, rank: number): number {
    const p = peak(view);
    return Math.max(lowestLogprob, Math.log1p(-this.#endChance) + Math.log(p) + rank * Math.log(1 - p));
  }
}

/** The probability of the most likely word, 0.35 to 0.95. */
function peak(view: number): number {
  return 0.35 + 0.6 * unit(view ^ 0x7feb352d);
}
