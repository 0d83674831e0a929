/** vLLM 0.32's own `POST /inference/v1/generate`: token ids in, token ids out. */

import { randomUUID } from 'node:crypto';
import type { HttpCall } from './http-call.ts';
import { readPromptLogprobs, vllmPromptLogprobs } from './prompt-scores.ts';
import { Problem, SchemaProblem, readPrompts, readSampling, type Fields } from './read-request.ts';
import { rankProblem, refuse, unknownModel } from './refusal.ts';
import { routedExperts } from './routed-experts.ts';
import { Sequence } from '../model/sequence.ts';
import { StreamOut } from './stream-out.ts';
import { WholeOut } from './whole-out.ts';

const names = { maxTokens: ['max_tokens'], minTokens: 'min_tokens', seed: 'seed' };
interface InferenceRequest {
  id: string;
  sequences: Sequence[];
  /** Alternatives per token; null if no logprobs were requested. */
  topLogprobs: number | null;
  promptLogprobs: number | null;
  returnsPrompt: boolean;
}

export function inferenceGenerate(call: HttpCall): void {
  const { given: body, core } = call;
  if (body instanceof SchemaProblem) return refuse(call, 400, body);
  const unknown = unknownModel(core, body);
  if (unknown !== null) return refuse(call, 404, unknown);
  const request = rankProblem(call) ?? read(call, body);
  if (request instanceof Problem) return refuse(call, 400, request);
  const { id, sequences } = request;
  const job = { id, sequences };
  call.tie(job);
  const head = { request_id: `generate-tokens-${id}` };
  if (body.stream === true) {
    const out = new StreamOut(
      call.openStream(),
      sequences,
      ({ sequence, index, from, to, isFirst }) => {
        const prompt = request.returnsPrompt && isFirst ? { prompt_token_ids: sequence.prompt } : {};
        return [{ ...head, ...prompt, choices: [choice(call, request, { sequence, index, from, to })] }];
      },
      () => (asksForUsage(body) ? [{ ...head, choices: [], usage: usage(sequences) }] : []),
    );
    core.start(job, out);
    return;
  }
  const created = Math.floor(Date.now() / 1000);
  const answer = (): object => ({
    ...head,
    model: core.options.model,
    created,
    usage: usage(sequences),
    prompt_token_ids: request.returnsPrompt ? sequences[0]!.prompt : null,
    output_mode: 'tokens',
    prompt_logprobs: vllmPromptLogprobs(core, sequences[0]!, request.promptLogprobs),
    choices: sequences.map((sequence, index) =>
      choice(call, request, { sequence, index, from: 0, to: sequence.output.length }),
    ),
  });
  core.start(job, new WholeOut(sequences.length, () => call.json(200, answer())));
}

interface Part {
  sequence: Sequence;
  index: number;
  from: number;
  to: number;
}

function choice({ core }: HttpCall, { topLogprobs }: InferenceRequest, { sequence, index, from, to }: Part): object {
  const { finish, output, views } = sequence;
  const { sampler } = core.scheduler;
  const content = output.slice(from, to).map((id, i) => {
    const view = views[from + i]!;
    const top = sampler.top(view, topLogprobs ?? 0).map((each, rank) => ({
      token_id: each.id,
      logprob: each.logprob,
      rank: rank + 1,
    }));
    return { token_id: id, logprob: sampler.logprob(view, id), rank: 1, top_logprobs: top };
  });
  return {
    index,
    finish_reason: finish?.type ?? null,
    stop_reason: finish?.type === 'stop' ? finish.matched : null,
    token_ids: output.slice(from, to),
    routed_experts: finish === null ? null : routedExperts(core, sequence, 0),
    sampling_mask: null,
    weight_versions: finish === null ? null : sequence.spans,
    logprobs: topLogprobs === null ? null : { content },
  };
}

const asksForUsage = ({ stream_options: options }: Fields): boolean =>
  (options as { include_usage?: unknown } | null | undefined)?.include_usage === true;

function usage(sequences: readonly Sequence[]): object {
  const prompt = sequences[0]!.prompt.length;
  const completion = sequences.reduce((sum, { output }) => sum + output.length, 0);
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: Math.max(0, sequences[0]!.cachedTokens) },
  };
}

function read(call: HttpCall, body: Fields): InferenceRequest | Problem {
  const { core } = call;
  const prompts = readPrompts(body.token_ids, 'token_ids', ['ids']);
  if (prompts instanceof Problem) return prompts;
  if (prompts.isBatch) return new SchemaProblem('token_ids must be a list of token ids', 'body.token_ids');
  const params = (body.sampling_params ?? {}) as Fields;
  const sampling = readSampling(params, names, core.nextUnseeded());
  if (sampling instanceof Problem) return sampling;
  const [prompt] = prompts.prompts;
  const limit = core.scheduler.maxSequenceTokens;
  const { maxTokens = limit - prompt!.length, samples } = sampling;
  if (maxTokens < 1 || prompt!.length + maxTokens > limit) {
    return new Problem(`The prompt and max_tokens have more than ${limit} tokens, or max_tokens is below 1.`);
  }
  const promptLogprobs = readPromptLogprobs(core, params, body.stream === true);
  if (promptLogprobs instanceof Problem) return promptLogprobs;
  const { model } = body;
  const isAdapter = typeof model === 'string' && model !== core.options.model;
  const adapter = isAdapter ? core.adapterSampler(model) : null;
  // The header goes before the field.
  const id = call.header('x-request-id') ?? (typeof body.request_id === 'string' ? body.request_id : randomUUID());
  const salt = typeof body.cache_salt === 'string' ? body.cache_salt : '';
  const namespace = isAdapter ? `${salt}\n${model}` : salt;
  const top = params.logprobs;
  return {
    id,
    sequences: Array.from({ length: samples }, (_, s) => {
      const own = `generate-tokens-${id}`;
      const sequence = new Sequence(s === 0 ? own : `${s}_${own}`, prompt!, sampling.sample(s, maxTokens), namespace);
      sequence.sampler = adapter;
      return sequence;
    }),
    promptLogprobs,
    topLogprobs: typeof top === 'number' ? Math.max(0, Math.min(top, 100)) : null,
    returnsPrompt: body.return_token_ids === true,
  };
}
