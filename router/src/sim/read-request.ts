/** Reads the fields that both faces share. A value that can't be understood is a Problem, in plain words. */

import { mix } from './mix.ts';
import type { Sampling } from './sequence.ts';
import { encode } from './tokenizer.ts';

export class Problem {
  readonly message: string;
  readonly param: string | null;
  constructor(message: string, param: string | null = null) {
    this.message = message;
    this.param = param;
  }
}

export type Fields = Readonly<Record<string, unknown>>;

/** Names under which a face keeps what differs. */
export interface SamplingNames {
  maxTokens: readonly string[];
  minTokens: string;
  seed: string;
}

export interface SamplingRequest {
  /** Undefined: as many as fit, or the face's default. */
  maxTokens: number | undefined;
  samples: number;
  /** Sampling of sample `index`. */
  sample(index: number, maxTokens: number): Sampling;
}

/** More samples of one prompt than any trainer asks for; unbounded `n` has killed real engines (CVE-2026-34756). */
const maxSamples = 4096;

export function readSampling(fields: Fields, names: SamplingNames, unseeded: number): SamplingRequest | Problem {
  const numbers: Record<string, number | undefined> = {};
  for (const name of [...names.maxTokens, names.minTokens, names.seed, 'temperature', 'top_k', 'n']) {
    const value = fields[name];
    if (value === undefined || value === null) continue;
    if (typeof value !== 'number') return new Problem(`${name} must be a number`, name);
    if (name !== 'temperature' && !Number.isInteger(value)) return new Problem(`${name} must be an integer`, name);
    numbers[name] = value;
  }
  const maxName = names.maxTokens.find((name) => numbers[name] !== undefined);
  const maxTokens = maxName === undefined ? undefined : numbers[maxName];
  const temperature = numbers.temperature ?? 1;
  if (temperature < 0) return new Problem('temperature must be non-negative', 'temperature');
  const samples = numbers.n ?? 1;
  if (samples < 1 || samples > maxSamples) return new Problem(`n must be between 1 and ${maxSamples}`, 'n');
  const stopTexts = typeof fields.stop === 'string' ? [fields.stop] : (fields.stop ?? []);
  if (!isListOf<string>(stopTexts, 'string')) return new Problem('stop must be a string or a list of strings', 'stop');
  const stopIds = fields.stop_token_ids ?? [];
  if (!isListOf<number>(stopIds, 'number'))
    return new Problem('stop_token_ids must be a list of ids', 'stop_token_ids');

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

/** A prompt as text, ids, or a list of either. `isBatch` tells a list of prompts from one prompt. */
export function readPrompts(value: unknown, name: string): { prompts: number[][]; isBatch: boolean } | Problem {
  if (typeof value === 'string') return checkPrompts([encode(value)], false, name);
  if (!Array.isArray(value) || value.length === 0) {
    return new Problem(`${name} must be a non-empty string, list of ids, or list of these`, name);
  }
  if (isTokenList(value)) return checkPrompts([value], false, name);
  const prompts: number[][] = [];
  for (const item of value as unknown[]) {
    if (typeof item === 'string') prompts.push(encode(item));
    else if (isTokenList(item)) prompts.push(item);
    else return new Problem(`${name} holds something that is neither text nor a list of token ids`, name);
  }
  return checkPrompts(prompts, true, name);
}

function checkPrompts(
  prompts: number[][],
  isBatch: boolean,
  name: string,
): { prompts: number[][]; isBatch: boolean } | Problem {
  if (prompts.some((prompt) => prompt.length === 0)) return new Problem(`${name} must not be empty`, name);
  return { prompts, isBatch };
}

function isTokenList(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((id) => Number.isInteger(id) && id >= 0 && id < 2 ** 31);
}

function isListOf<T>(value: unknown, type: 'string' | 'number'): value is T[] {
  return Array.isArray(value) && value.every((item) => typeof item === type);
}
