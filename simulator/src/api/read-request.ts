/** Reads the fields that both engines have. A value that is not valid is a Problem with a message. */

import { mix } from '../model/mix.ts';
import type { Sampling } from '../model/sequence.ts';
import { encode } from '../tokens/tokenizer.ts';

export class Problem {
  readonly message: string;
  readonly param: string | null;
  constructor(message: string, param: string | null = null) {
    this.message = message;
    this.param = param;
  }
}

/**
 * A value of a wrong type, or a missing one, which engines refuse before they check the request as a whole. `param` is
 * its path, as in `body.n`.
 */
export class SchemaProblem extends Problem {}

export type Fields = Readonly<Record<string, unknown>>;

/** The names of fields that differ between APIs. */
export interface SamplingNames {
  maxTokens: readonly string[];
  minTokens: string;
  seed: string;
}

export interface SamplingRequest {
  /** Undefined: as many as fit, or the API's default. */
  maxTokens: number | undefined;
  samples: number;
  /** The sampling of sample `index`. */
  sample(index: number, maxTokens: number): Sampling;
}

/** More samples of one prompt than trainers request; an unbounded `n` crashed real engines (CVE-2026-34756). */
const maxSamples = 4096;

export function readSampling(fields: Fields, names: SamplingNames, unseeded: number): SamplingRequest | Problem {
  const numbers: Record<string, number | undefined> = {};
  for (const name of [...names.maxTokens, names.minTokens, names.seed, 'temperature', 'top_k', 'n']) {
    const value = fields[name];
    if (value === undefined || value === null) continue;
    if (typeof value !== 'number') return new SchemaProblem(`${name} must be a number`, `body.${name}`);
    if (name !== 'temperature' && !Number.isInteger(value)) {
      return new SchemaProblem(`${name} must be an integer`, `body.${name}`);
    }
    numbers[name] = value;
  }
  const maxName = names.maxTokens.find((name) => numbers[name] !== undefined);
  const maxTokens = maxName === undefined ? undefined : numbers[maxName];
  const temperature = numbers.temperature ?? 1;
  if (temperature < 0) return new Problem('temperature must be non-negative', 'temperature');
  const samples = numbers.n ?? 1;
  if (samples < 1 || samples > maxSamples) return new Problem(`n must be between 1 and ${maxSamples}`, 'n');
  const stopTexts = typeof fields.stop === 'string' ? [fields.stop] : (fields.stop ?? []);
  if (!isListOf<string>(stopTexts, 'string')) {
    return new SchemaProblem('stop must be a string or a list of strings', 'body.stop');
  }
  const stopIds = fields.stop_token_ids ?? [];
  if (!isListOf<number>(stopIds, 'number')) {
    return new SchemaProblem('stop_token_ids must be a list of ids', 'body.stop_token_ids');
  }

  const shared = {
    minTokens: numbers[names.minTokens] ?? 0,
    temperature,
    topK: numbers.top_k ?? 0,
    ignoreEos: fields.ignore_eos === true,
    stopTexts: stopTexts.filter((text) => text !== ''),
    stopIds,
    showStop: fields.no_stop_trim === true || fields.include_stop_str_in_output === true,
    showSpecial: fields.skip_special_tokens === false,
  };
  const seed = numbers[names.seed] ?? unseeded;
  return {
    maxTokens,
    samples,
    sample: (index, limit) => ({ ...shared, maxTokens: limit, sampleSeed: mix(seed, index) }),
  };
}

type PromptForm = 'text' | 'ids';

/** Prompts as token ids. `isBatch` distinguishes a list of prompts from one prompt. */
interface Prompts {
  prompts: number[][];
  isBatch: boolean;
}

/** A prompt in one of `forms`, or a list of these. */
export function readPrompts(
  value: unknown,
  name: string,
  forms: readonly PromptForm[] = ['text', 'ids'],
): Prompts | Problem {
  const formNames = forms.map((form) => (form === 'text' ? 'text' : 'a list of token ids')).join(' or ');
  const single = readPrompt(value, forms);
  if (single) return checkPrompts([single], false, name);
  if (!Array.isArray(value) || value.length === 0) {
    return new SchemaProblem(`${name} must be ${formNames}, or a list of these`, `body.${name}`);
  }
  const prompts: number[][] = [];
  for (const item of value as unknown[]) {
    const prompt = readPrompt(item, forms);
    if (!prompt) return new SchemaProblem(`${name} holds something that is not ${formNames}`, `body.${name}`);
    prompts.push(prompt);
  }
  return checkPrompts(prompts, true, name);
}

function readPrompt(value: unknown, forms: readonly PromptForm[]): number[] | null {
  if (typeof value === 'string') return forms.includes('text') ? encode(value) : null;
  return forms.includes('ids') && isTokenList(value) ? value : null;
}

function checkPrompts(prompts: number[][], isBatch: boolean, name: string): Prompts | Problem {
  if (prompts.some((prompt) => prompt.length === 0)) return new Problem(`${name} must not be empty`, name);
  return { prompts, isBatch };
}

function isTokenList(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((id) => Number.isInteger(id) && id >= 0 && id < 2 ** 31);
}

function isListOf<T>(value: unknown, type: 'string' | 'number'): value is T[] {
  return Array.isArray(value) && value.every((item) => typeof item === type);
}
