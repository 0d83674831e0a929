import { isObject } from '../kit/json-object.ts';
import * as z from 'zod';
import { checkInput } from '../config/check-input.ts';
import { MemberFinder, keyIs, readString, scanItems, scanMembers } from '../kit/json-scan.ts';
import type { Numeral, Sample } from './sample.ts';

/** A request that is refused: the status and the words for the client. */
export interface Invalid {
  readonly status: 400 | 422;
  readonly detail: string;
}

const numeral = z.union([z.number(), z.bigint()]);
const integer = z.custom<Numeral>(
  (value) => (typeof value === 'bigint' ? BigInt.asIntN(64, value) === value : Number.isSafeInteger(value)),
  'must be an integer of at most 64 bits',
);
const top = z.int().min(0).max(1000).nullish();

/** SGLang engines may get them once for each sample. */
const MAX_STOPS = 1024;
const stopText = z.string().max(1024);

/** Fields that this server does not know are ignored, because each release of the SDK adds some. */
const schema = z.object({
  sampling_session_id: z.string().nullish(),
  seq_id: integer.nullish(),
  base_model: z.string().nullish(),
  model_path: z.string().nullish(),
  num_samples: z.int().min(1).max(4096).nullish(),
  sampling_params: z
    .object({
      max_tokens: integer.refine((value) => value > 0, 'must be above 0').nullish(),
      temperature: numeral.nullish(),
      top_k: integer.nullish(),
      top_p: numeral.nullish(),
      seed: integer.nullish(),
      stop: z
        .union(
          [stopText, z.array(stopText).max(MAX_STOPS), z.array(z.int()).max(MAX_STOPS)],
          'must be a text, a list of texts or a list of token ids',
        )
        .nullish(),
    })
    .nullish(),
  prompt_logprobs: z.boolean().nullish(),
  topk_prompt_logprobs: top,
  topk_sample_logprobs: top,
});

/** What this server can't do, so that no client takes a missing answer for one: the field is refused unless it is off. */
const unsupported = ['prompt_logprobs_last_n', 'target_prompt_logprobs', 'prompt_alt_tokens_k'] as const;

const promptFinder = new MemberFinder(['prompt']);
const chunksFinder = new MemberFinder(['chunks']);
const span = new Int32Array(2);

/**
 * Reads the body of an asample request. Token ids stay the bytes that the client wrote; numbers keep their digits.
 * Runs on a thread where the body is large.
 */
export function readSample(body: Buffer): Sample | Invalid {
  const at = promptFinder.find(body, 0, body.length, span);
  if (at < 0) return invalid('The body is not a JSON object.');
  if (span[0]! < 0) return invalid('prompt: missing', 422);
  const [from, to] = span as unknown as [number, number];
  const rest = parseExactly(`${body.toString('utf8', 0, from)}null${body.toString('utf8', to)}`);
  if (rest === null) return invalid('The body is not valid JSON.');
  for (const name of unsupported) {
    const value = rest[name] ?? null;
    if (value !== null && value !== 0) return invalid(`${name}: this server does not support it`);
  }
  const { data, problem } = checkInput(schema, rest);
  if (problem !== null) return invalid(problem);
  const { sampling_session_id: session, seq_id: seqId, base_model: baseModel, model_path: modelPath } = data;
  const hasSession = typeof session === 'string';
  const sources = Number(hasSession) + Number(Boolean(baseModel)) + Number(Boolean(modelPath));
  if (sources !== 1) return invalid('Give one of sampling_session_id, base_model and model_path.', 422);
  const prompt = readPrompt(body.subarray(from, to));
  if ('detail' in prompt) return prompt;
  const params = data.sampling_params ?? {};
  return {
    samplingSession: session ?? '',
    seqId: hasSession ? String(seqId ?? '') : '',
    baseModel: baseModel ?? '',
    modelPath: modelPath ?? '',
    count: data.num_samples ?? 1,
    prompt: prompt.ids,
    promptTokens: prompt.count,
    params: {
      maxTokens: params.max_tokens ?? null,
      temperature: params.temperature ?? 1,
      topK: params.top_k ?? -1,
      topP: params.top_p ?? 1,
      seed: params.seed ?? null,
      stop: typeof params.stop === 'string' ? [params.stop] : (params.stop ?? null),
    },
    wantsPromptLogprobs: data.prompt_logprobs === true || (data.topk_prompt_logprobs ?? 0) > 0,
    topPrompt: data.topk_prompt_logprobs ?? 0,
    topSampled: data.topk_sample_logprobs ?? 0,
  };
}

const invalid = (detail: string, status: Invalid['status'] = 400): Invalid => ({ status, detail });

type Source = { readonly source?: string };

/** Beyond 2^53, and short enough to have 64 bits: the time that a bigint takes grows with the square of its digits. */
const LONG_INTEGER = /^-?\d{16,19}$/;

/** JSON.parse, with integers beyond 2^53 as bigints. @returns null for what is not a JSON object */
function parseExactly(text: string): Record<string, unknown> | null {
  const exact = (_: string, value: unknown, { source = '' }: Source = {}): unknown =>
    typeof value === 'number' && !Number.isSafeInteger(value) && LONG_INTEGER.test(source) ? BigInt(source) : value;
  try {
    const value: unknown = JSON.parse(text, exact);
    return isObject(value) ? value : null;
  } catch {
    return null;
  }
}

/** @returns the ids of all chunks, in their order */
function readPrompt(prompt: Buffer): { ids: Buffer; count: number } | Invalid {
  const parts: Buffer[] = [];
  let count = 0;
  let problem: Invalid | null = null;
  if (chunksFinder.find(prompt, 0, prompt.length, span) < 0 || span[0]! < 0)
    return invalid('prompt.chunks: missing', 422);
  const after = scanItems(prompt, span[0]!, span[1]!, (from, to) => {
    const { kind, tokens } = readChunk(prompt, from, to);
    if (kind !== 'encoded_text') problem = invalid(`prompt.chunks: this server takes encoded_text only, not ${kind}`);
    const ids = kind === 'encoded_text' ? countIds(tokens) : 0;
    if (ids < 0) problem = invalid('prompt.chunks: tokens must be a list of token ids');
    if (problem !== null) return false;
    count += ids;
    if (ids > 0) parts.push(tokens.subarray(1, tokens.length - 1), COMMA);
    return true;
  });
  if (problem !== null) return problem;
  if (after < 0) return invalid('prompt.chunks: must be a list');
  if (count === 0) return invalid('prompt: has no tokens');
  return { ids: parts.length === 2 ? parts[0]! : Buffer.concat(parts.slice(0, -1)), count };
}

/** @returns -1: not a list of ids */
function countIds(list: Buffer): number {
  try {
    const ids = JSON.parse(list.toString('latin1')) as unknown[];
    return ids.every((id) => Number.isInteger(id) && (id as number) >= 0 && (id as number) < 2 ** 31) ? ids.length : -1;
  } catch {
    return -1;
  }
}

const COMMA = Buffer.from(',');
const NO_LIST = Buffer.from('[]');

/** The kind of a chunk without `type` shows in its fields, as in the SDK's releases that leave `type` out. */
function readChunk(prompt: Buffer, from: number, to: number): { kind: string; tokens: Buffer } {
  let kind = '';
  let tokens: Buffer = NO_LIST;
  let shown = 'a chunk of an unknown kind';
  scanMembers(prompt, from, to, (keyStart, keyEnd, start, end) => {
    const is = (name: string): boolean => keyIs(prompt, keyStart, keyEnd, name);
    if (is('type')) kind = readString(prompt, start, end) ?? '';
    else if (is('tokens')) {
      tokens = prompt.subarray(start, end);
      shown = 'encoded_text';
    } else if (is('data')) shown = 'image';
    else if (is('location')) shown = 'image_asset_pointer';
  });
  return { kind: kind || shown, tokens };
}
