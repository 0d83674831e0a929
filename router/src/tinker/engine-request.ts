import { completions, namesIds } from '../engines/dialects/completions.ts';
import { generate } from '../engines/dialects/generate.ts';
import { inference } from '../engines/dialects/inference.ts';
import type { Worker } from '../fleet/worker.ts';
import type { Numeral, Sample } from './sample.ts';

/** Of the body for an SGLang engine in which each sample has its prompt. */
const MAX_BATCH_BYTES = 67_108_864;
/** What a seed and its name add, at most. */
const SEED_BYTES = 48;

/** What a worker is asked by. An engine of an unknown kind is taken for one that speaks OpenAI's API with vLLM's fields. */
export function samplePath(worker: Pick<Worker, 'engine'> | undefined, vllmApi: 'completions' | 'generate'): string {
  if (worker?.engine === 'sglang') return generate.path;
  return vllmApi === 'generate' && worker?.engine !== 'openai' ? inference.path : completions.path;
}

/** What engines serve a sample with. */
export interface Served {
  readonly model: string;
  /** The name of a LoRA adapter; null: the model's own weights. */
  readonly adapter: string | null;
  /** Pairs of a prefill and a decode engine serve it. */
  readonly inPairs: boolean;
}

/** The body for the engine, in parts: one request for all samples, so that they share the worker and its prefix cache. */
export function engineRequest(path: string, sample: Sample, served: Served): Buffer[] {
  if (path === generate.path) return sglangRequest(sample, served);
  const { model, adapter } = served;
  const { count, params, prompt, topSampled, wantsPromptLogprobs } = sample;
  const { stop, seed } = params;
  const sampling = {
    n: count,
    max_tokens: exact(params.maxTokens),
    temperature: exact(params.temperature),
    top_k: exact(params.topK),
    top_p: exact(params.topP),
    // vLLM adds the number of the sample.
    ...(seed === null ? {} : { seed: exact(seed) }),
    ...stopFields(stop),
    ...(wantsPromptLogprobs ? { prompt_logprobs: sample.topPrompt } : {}),
    // vllm-router and older vLLM take no 0 here.
    logprobs: Math.max(1, topSampled),
  };
  if (path === inference.path) {
    const fields = { model: adapter ?? model, sampling_params: { ...sampling, logprobs: topSampled } };
    return [Buffer.from('{"token_ids":['), prompt, Buffer.from(`],${membersOf(fields)}`)];
  }
  const fields = { model: adapter ?? model, ...sampling, stream: false };
  const names = Object.entries(namesIds).map(([name, value]) => `"${name}":${value},`);
  return [Buffer.from('{"prompt":['), prompt, Buffer.from(`],${names.join('')}${membersOf(fields)}`)];
}

/** SGLang samples `n` times with one seed, and serves no `n` above 1 in pairs: then the samples are a batch, in which each has its prompt and seed. */
function sglangRequest(sample: Sample, { adapter, inPairs }: Served): Buffer[] {
  const { count, prompt, topPrompt, topSampled, wantsPromptLogprobs } = sample;
  const { seed } = sample.params;
  const top = Math.max(topPrompt, topSampled);
  const isBatch = needsBatch(sample, inPairs);
  const fields = {
    return_logprob: true,
    ...(wantsPromptLogprobs ? { logprob_start_len: 0 } : {}),
    ...(top > 0 ? { top_logprobs_num: top } : {}),
    ...(adapter === null ? {} : { lora_path: isBatch ? Array<string>(count).fill(adapter) : adapter }),
    stream: false,
  };
  const end = Buffer.from(`,${membersOf(fields)}`);
  const params = JSON.stringify(sglangParams(sample)).slice(0, -1);
  const seedAt = (i: number): string => (seed === null ? '' : `,"sampling_seed":${seedOf(seed, i)}`);
  if (!isBatch) {
    const own = `],"sampling_params":${params},"n":${count}${seedAt(0)}}`;
    return [Buffer.from('{"input_ids":['), prompt, Buffer.from(own), end];
  }
  const parts = [Buffer.from('{"input_ids":[['), prompt];
  for (let i = 1; i < count; i++) parts.push(BETWEEN, prompt);
  const shared = Buffer.from(params);
  for (let i = 0; i < count; i++) parts.push(i === 0 ? PARAMS : COMMA, shared, Buffer.from(`${seedAt(i)}}`));
  return [...parts, CLOSE, end];
}

const needsBatch = ({ count, params }: Sample, inPairs: boolean): boolean =>
  count > 1 && (params.seed !== null || inPairs);

function sglangParams({ params }: Sample): object {
  return {
    max_new_tokens: exact(params.maxTokens),
    temperature: exact(params.temperature),
    top_k: exact(params.topK),
    top_p: exact(params.topP),
    ...stopFields(params.stop),
  };
}

/** @returns why SGLang engines can't be asked for such a batch; null: they can */
export function batchProblem(sample: Sample, inPairs: boolean): string | null {
  if (!needsBatch(sample, inPairs)) return null;
  const { count, prompt } = sample;
  const bytes = prompt.length + JSON.stringify(sglangParams(sample)).length + SEED_BYTES;
  if (count * bytes <= MAX_BATCH_BYTES) return null;
  const [where, remedy] = inPairs ? ['in pairs', ''] : ['with a seed', ', or leave out the seed'];
  return (
    `num_samples: ${where}, SGLang engines get the prompt and the sampling parameters once for each sample, and ${count} × ${bytes} bytes ` +
    `are more than ${MAX_BATCH_BYTES}. Ask for at most ${Math.floor(MAX_BATCH_BYTES / bytes)} samples in a call${remedy}.`
  );
}

function stopFields(stop: Sample['params']['stop']): object {
  if (stop === null) return {};
  if (stop.length === 0) return { ignore_eos: true };
  return typeof stop[0] === 'string' ? { stop } : { stop_token_ids: stop };
}

/** As vLLM and SGLang number seeds, within 64 bits. */
const seedOf = (seed: Numeral, i: number): bigint => BigInt.asIntN(64, BigInt(seed) + BigInt(i));

const { rawJSON } = JSON as unknown as { rawJSON(text: string): object };
/** For JSON.stringify: all digits. */
const exact = (value: Numeral | null): unknown => (typeof value === 'bigint' ? rawJSON(String(value)) : value);

/** An object without its opening brace. */
const membersOf = (fields: object): string => JSON.stringify(fields).slice(1);

/** The ids in such a body: what the client sent need not be kept beside it. */
export function promptIn(body: Buffer, { prompt }: Sample): Buffer {
  let start = body.indexOf(OPEN_ARRAY);
  while (body[start] === OPEN_ARRAY) start++;
  return body.subarray(start, start + prompt.length);
}

const OPEN_ARRAY = 0x5b;

const COMMA = Buffer.from(',');
const BETWEEN = Buffer.from('],[');
const PARAMS = Buffer.from(']],"sampling_params":[');
const CLOSE = Buffer.from(']');
