import { JsonEdit } from '../../kit/json-edit.ts';
import { keyIs, scanMembers } from '../../kit/json-scan.ts';

/** A prompt as its client wrote it. */
export type GivenPrompt = string | Int32Array;

/** What a request asks to be generated, as far as its tokens are concerned. */
export interface GivenRequest {
  readonly prompts: readonly GivenPrompt[];
  /** Samples of each; answers come prompt by prompt. */
  readonly samples: number;
  /** What its client calls the model, and the adapter: one for each prompt. */
  readonly models: readonly string[];
  readonly addSpecial: boolean;
  /** The place of the member with its prompts, key included. */
  readonly from: number;
  readonly to: number;
  /** The place of an `input_ids` that is null beside a text. */
  readonly noIds: { readonly from: number; readonly to: number } | null;
  readonly isList: boolean;
  /** Of `/v1/completions`: it asks for ids in its answer. */
  readonly asksForIds: boolean;
  readonly isStream: boolean;
  /** The index of the brace that ends it. */
  readonly end: number;
}

/** `generate`: SGLang's own; `completions`: OpenAI's; `inference`: vLLM's own, token ids in and token ids out. */
export type CaptureDialect = 'generate' | 'completions' | 'inference';

const dialects: Readonly<Record<string, CaptureDialect>> = {
  '/generate': 'generate',
  '/v1/completions': 'completions',
  '/inference/v1/generate': 'inference',
};

/** null: nothing that is asked for by this path is captured so. */
export const dialectOf = (path: string): CaptureDialect | null => dialects[path] ?? null;

const names = {
  generate: [
    'text',
    'input_ids',
    'sampling_params',
    'model',
    'lora_path',
    'image_data',
    'video_data',
    'audio_data',
    'input_embeds',
    'stream',
  ],
  completions: [
    'prompt',
    'n',
    'best_of',
    'model',
    'lora_path',
    'add_special_tokens',
    'return_token_ids',
    'echo',
    'prompt_embeds',
    'stream',
  ],
  // `features`: the placeholders of images and other media in the prompt.
  inference: ['token_ids', 'sampling_params', 'model', 'features', 'stream'],
} as const;

/** The members that have prompts. */
const fields = {
  generate: ['text', 'input_ids'],
  completions: ['prompt'],
  inference: ['token_ids'],
} as const satisfies Readonly<Record<CaptureDialect, readonly string[]>>;

/** Beside tokens, or in their place, there is something that is no text: its ids are the engine's alone. */
const media = ['image_data', 'video_data', 'audio_data', 'features'];
const embeds = ['input_embeds', 'prompt_embeds'];

interface Member {
  readonly from: number;
  readonly to: number;
  readonly value: unknown;
}

/** @returns null: a request whose tokens can't be known, or a wrong one, which the engine refuses */
export function readRequest(dialect: CaptureDialect, body: Buffer): GivenRequest | null {
  const members = new Map<string, Member>();
  let isTwice = false;
  const after = scanMembers(body, 0, body.length, (keyStart, keyEnd, from, to) => {
    const name = names[dialect].find((known) => keyIs(body, keyStart, keyEnd, known));
    if (name === undefined) return;
    isTwice ||= members.has(name);
    members.set(name, { from: keyStart - 1, to, value: parse(body, from, to) });
  });
  if (after < 0 || isTwice) return null;
  const valueOf = (name: string): unknown => members.get(name)?.value ?? null;
  if (media.some((name) => hasData(valueOf(name))) || embeds.some((name) => valueOf(name) !== null)) return null;
  if (dialect === 'completions' && (valueOf('echo') === true || (valueOf('best_of') ?? 1) !== 1)) return null;
  const given = fields[dialect].filter((name) => valueOf(name) !== null);
  if (given.length !== 1) return null;
  const field = members.get(given[0]!)!;
  const prompts = readPrompts(field.value);
  const samples = dialect === 'completions' ? countOf(valueOf('n')) : samplesOf(valueOf('sampling_params'));
  if (prompts === null || samples === 0) return null;
  const isList = Array.isArray(field.value) && (typeof field.value[0] === 'string' || Array.isArray(field.value[0]));
  return {
    prompts,
    samples,
    models: prompts.map((_, i) => nameOf(valueOf('model'), adapterOf(valueOf('lora_path'), i))),
    addSpecial: valueOf('add_special_tokens') !== false,
    from: field.from,
    to: field.to,
    noIds: given[0] === 'text' ? (members.get('input_ids') ?? null) : null,
    isList,
    asksForIds: valueOf('return_token_ids') === true,
    isStream: valueOf('stream') === true,
    end: after - 1,
  };
}

/** As in SGLang 0.5.23 (`has_valid_data`): AReaL's client writes `"image_data": []` for no image. */
function hasData(value: unknown): boolean {
  return Array.isArray(value) ? value.some(hasData) : value !== null;
}

const ASKING = { return_token_ids: 'true' };

/** The same request with ids in place of its texts; every other byte is its client's. */
export function withIds(
  dialect: CaptureDialect,
  body: Buffer,
  { from, to, noIds, isList, asksForIds, end }: GivenRequest,
  prompts: readonly Int32Array[],
): Buffer {
  const key = dialect === 'generate' ? '"input_ids":' : '"prompt":';
  const lists = prompts.map((ids) => `[${ids.join(',')}]`);
  const edit = new JsonEdit(body);
  edit.replace(from, to, `${key}${isList ? `[${lists.join(',')}]` : lists[0]!}`);
  // Of two members with one name engines use the last, and that would be null.
  if (noIds !== null) edit.replace(noIds.from, noIds.to, '"text":null');
  if (dialect !== 'generate' && !asksForIds) edit.append(end, ASKING);
  return edit.result();
}

/** The same request, asking for ids in its answer. */
export function askingForIds(body: Buffer, { asksForIds, end }: GivenRequest): Buffer {
  const edit = new JsonEdit(body);
  if (!asksForIds) edit.append(end, ASKING);
  return edit.result();
}

function parse(body: Buffer, from: number, to: number): unknown {
  try {
    return JSON.parse(body.toString('utf8', from, to)) as unknown;
  } catch {
    return null;
  }
}

function readPrompts(value: unknown): GivenPrompt[] | null {
  const one = readPrompt(value);
  if (one !== null) return [one];
  if (!Array.isArray(value) || value.length === 0) return null;
  const prompts: GivenPrompt[] = [];
  for (const each of value) {
    const prompt = readPrompt(each);
    if (prompt === null || typeof prompt !== typeof (prompts[0] ?? prompt)) return null;
    prompts.push(prompt);
  }
  return prompts;
}

function readPrompt(value: unknown): GivenPrompt | null {
  if (typeof value === 'string') return value === '' ? null : value;
  return isIds(value) ? new Int32Array(value) : null;
}

const isIds = (value: unknown): value is number[] =>
  Array.isArray(value) &&
  value.length > 0 &&
  value.every((id) => typeof id === 'number' && Number.isInteger(id) && id >= 0 && id < 2 ** 31);

/** 0: not known. */
const countOf = (value: unknown): number =>
  value === null ? 1 : typeof value === 'number' && Number.isInteger(value) && value > 0 ? value : 0;

/** A list has parameters for each prompt; SGLang wants the same `n` in all of them. */
function samplesOf(params: unknown): number {
  const first: unknown = Array.isArray(params) ? params[0] : params;
  if (typeof first !== 'object' || first === null) return params === null ? 1 : 0;
  return countOf((first as { n?: unknown }).n ?? null);
}

/** SGLang takes a list of adapters for a list of prompts. */
const adapterOf = (adapters: unknown, prompt: number): unknown =>
  Array.isArray(adapters) ? (adapters as unknown[])[prompt] : adapters;

const nameOf = (...parts: readonly unknown[]): string =>
  parts
    .map((part) => (typeof part === 'string' ? part : ''))
    .join('\n')
    .trim();
