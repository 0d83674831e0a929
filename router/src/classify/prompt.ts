import type { Prompt } from '../exchange.ts';
import { MAX_BLOCK_BYTES, hashBlocks, hashBytes, unitsOf } from '../kit/block-hash.ts';

/**
 * The fields of prompts, in order of preference: SGLang's /generate, vLLM's /inference/v1/generate, completions (a
 * string, ids, or several of either), chat.
 */
export const promptFields = ['input_ids', 'text', 'token_ids', 'prompt', 'messages'] as const;

/** Bytes of text per token without a count: the average of common tokenizers for English and code. */
const TEXT_BYTES_PER_TOKEN = 4;

/** Bytes that are sampled to estimate the size of one id. */
const SAMPLE_BYTES = 512;

const COMMA = 0x2c;
const OPEN = 0x5b;
const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= 0x30 && byte <= 0x39;

/**
 * The prompt in `bytes`; `spans[at]`, `spans[at + 1]` is the span of the first of `promptFields`, -1 if absent.
 *
 * Only bytes are compared: the prompt of a turn begins with the bytes of the turn before, without the closing bracket.
 */
export function promptOf(bytes: Buffer, spans: Int32Array, at: number): Prompt | null {
  for (const [i, field] of promptFields.entries()) {
    const start = spans[at + 2 * i]! + 1;
    const end = spans[at + 2 * i + 1]! - 1;
    const opening = bytes[start - 1];
    if (start === 0 || (opening !== 0x22 && opening !== OPEN)) continue;
    const blocks = hashBlocks(bytes, start, Math.min(end, start + MAX_BLOCK_BYTES));
    const rest = bytes.subarray(start + unitsOf(blocks.length), end);
    return {
      field,
      blocks,
      bytes: end - start,
      tokens: tokensIn(bytes, start, end),
      hash: (blocks.at(-1) ?? 0) ^ hashBytes([rest]),
    };
  }
  return null;
}

/** The approximate number of tokens in a prompt, between its quotes or brackets. */
export const tokensIn = (bytes: Buffer, start: number, end: number): number =>
  Math.max(1, (end - start) / bytesPerToken(bytes, start, end));

function bytesPerToken(bytes: Buffer, start: number, end: number): number {
  // A list of lists is a batch of prompts.
  const first = bytes[start] === OPEN ? start + 1 : start;
  if (!isDigit(bytes[first])) return TEXT_BYTES_PER_TOKEN;
  const sampleEnd = Math.min(end, first + SAMPLE_BYTES);
  let commas = 0;
  let lastComma = first;
  for (let i = first; i < sampleEnd; i++) {
    if (bytes[i] !== COMMA) continue;
    commas++;
    lastComma = i + 1;
  }
  return commas === 0 ? end - start : (lastComma - first) / commas;
}
