import type { Worker } from '../fleet/worker.ts';
import type { Numeral, Sample } from './sample.ts';

/** How an engine is asked for a sample: the path says which. */
export type SamplePath = '/v1/completions' | '/inference/v1/generate' | '/generate';

/** What a worker is asked by. An engine of an unknown kind is taken for one that speaks OpenAI's API with vLLM's fields. */
export function samplePath(
  worker: Pick<Worker, 'engine'> | undefined,
  vllmApi: 'completions' | 'generate',
): SamplePath {
  if (worker?.engine === 'sglang') return '/generate';
  return vllmApi === 'generate' && worker?.engine !== 'openai' ? '/inference/v1/generate' : '/v1/completions';
}

/**
 * The body for the engine: one request for all samples, so that they share the worker and its prefix cache.
 * @param adapter the name of a LoRA adapter; null: the model's own weights
 */
export function engineRequest(path: SamplePath, sample: Sample, model: string, adapter: string | null): Buffer {
  if (path === '/generate') return sglangRequest(sample, adapter);
  const { count, params, prompt, topSampled, wantsPromptLogprobs } = sample;
  const { stop, seed } = params;
  const sampling = {
    n: count,
    max_tokens: exact(params.maxTokens),
    temperature: exact(params.temperature),
    top_k: exact(params.topK),
    top_p: exact(params.topP),
    ...(seed === null ? {} : { seed: exact(seed) }),
    ...stopFields(stop),
    ...(wantsPromptLogprobs ? { prompt_logprobs: sample.topPrompt } : {}),
    // vllm-router and older vLLM take no 0 here.
    logprobs: Math.max(1, topSampled),
  };
  if (path === '/inference/v1/generate') {
    return joined('token_ids', [prompt], {
      model: adapter ?? model,
      sampling_params: { ...sampling, logprobs: topSampled },
    });
  }
  const names = { return_token_ids: true, return_tokens_as_token_ids: true };
  return joined('prompt', [prompt], { model: adapter ?? model, ...sampling, ...names, stream: false });
}

/** SGLang samples `n` times with one seed: samples with a seed are a batch, in which each has its own. */
function sglangRequest(
  { count, params, prompt, topPrompt, topSampled, wantsPromptLogprobs }: Sample,
  adapter: string | null,
): Buffer {
  const { seed, stop } = params;
  const isBatch = seed !== null && count > 1;
  const sampling = {
    ...(isBatch ? {} : { n: count }),
    max_new_tokens: exact(params.maxTokens),
    temperature: exact(params.temperature),
    top_k: exact(params.topK),
    top_p: exact(params.topP),
    ...stopFields(stop),
  };
  const seeded = (i: number): object =>
    seed === null ? sampling : { ...sampling, sampling_seed: exact(plus(seed, i)) };
  const top = Math.max(topPrompt, topSampled);
  return joined('input_ids', isBatch ? Array<Buffer>(count).fill(prompt) : [prompt], {
    sampling_params: isBatch ? Array.from({ length: count }, (_, i) => seeded(i)) : seeded(0),
    return_logprob: true,
    ...(wantsPromptLogprobs ? { logprob_start_len: 0 } : {}),
    ...(top > 0 ? { top_logprobs_num: top } : {}),
    ...(adapter === null ? {} : { lora_path: isBatch ? Array<string>(count).fill(adapter) : adapter }),
    stream: false,
  });
}

function stopFields(stop: Sample['params']['stop']): object {
  if (stop === null) return {};
  if (stop.length === 0) return { ignore_eos: true };
  return typeof stop[0] === 'string' ? { stop } : { stop_token_ids: stop };
}

const plus = (seed: Numeral, i: number): Numeral => BigInt(seed) + BigInt(i);

const { rawJSON } = JSON as unknown as { rawJSON(text: string): object };
/** For JSON.stringify: all digits. */
const exact = (value: Numeral | null): unknown => (typeof value === 'bigint' ? rawJSON(String(value)) : value);

/** An object with the ids first, without building text of them; several lists are a list of lists. */
function joined(name: string, lists: readonly Buffer[], fields: object): Buffer {
  const isOne = lists.length === 1;
  const parts: Buffer[] = [Buffer.from(`{"${name}":[${isOne ? '' : '['}`)];
  for (const [i, list] of lists.entries()) parts.push(...(i === 0 ? [] : [BETWEEN]), list);
  parts.push(Buffer.from(`${isOne ? '' : ']'}],${JSON.stringify(fields).slice(1)}`));
  // Not in the pool of small buffers: this lives as long as the sample, and would keep alive what it shares the pool with.
  const body = Buffer.allocUnsafeSlow(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) at += part.copy(body, at);
  return body;
}

/** The ids in such a body: what the client sent need not be kept beside it. */
export function promptIn(body: Buffer, { prompt }: Sample): Buffer {
  let start = body.indexOf(OPEN_ARRAY);
  while (body[start] === OPEN_ARRAY) start++;
  return body.subarray(start, start + prompt.length);
}

const OPEN_ARRAY = 0x5b;

const BETWEEN = Buffer.from('],[');
