/** `POST /v1/completions` and `POST /v1/chat/completions`. */

import { randomUUID } from 'node:crypto';
import { readMessages, renderChat } from '../tokens/chat-template.ts';
import type { SimOptions } from '../sim-options.ts';
import type { HttpCall } from './http-call.ts';
import type { OpenAiDialect, OpenAiRequest } from './openai-dialect.ts';
import { readPromptLogprobs } from './prompt-scores.ts';
import { Problem, SchemaProblem, readPrompts, readSampling, type Fields } from './read-request.ts';
import { rankProblem, refuse, unknownAdapter, unknownModel } from './refusal.ts';
import { Sequence } from '../model/sequence.ts';
import { sglangDialect } from './sglang-dialect.ts';
import { StreamOut } from './stream-out.ts';
import { encode } from '../tokens/tokenizer.ts';
import { vllmDialect } from './vllm-dialect.ts';
import { WholeOut } from './whole-out.ts';

const chatNames = {
  maxTokens: ['max_completion_tokens', 'max_tokens'],
  minTokens: 'min_tokens',
  seed: 'seed',
};
const completionNames = { maxTokens: ['max_tokens'], minTokens: 'min_tokens', seed: 'seed' };
/** OpenAI's default for completions in both engines; chats continue to the end of the context. */
const completionMaxTokens = 16;

export function completions(call: HttpCall): void {
  answer(call, false);
}

export function chatCompletions(call: HttpCall): void {
  answer(call, true);
}

function answer(call: HttpCall, isChat: boolean): void {
  const { core, given: body } = call;
  const dialect: OpenAiDialect = core.options.kind === 'vllm' ? vllmDialect : sglangDialect;
  if (body instanceof SchemaProblem) return refuse(call, 400, body);

  // SGLang accepts any model name, vLLM answers 404 (both measured).
  const unknown = core.options.kind === 'vllm' ? unknownModel(core, body) : null;
  if (unknown !== null) return refuse(call, 404, unknown);
  if (body.cache_salt === '') {
    const message = "Parameter 'cache_salt' must be a non-empty string if provided.";
    return refuse(call, 400, new Problem(message, 'cache_salt'));
  }
  const request = rankProblem(call) ?? read(call, body, isChat);
  if (request instanceof Problem) return refuse(call, 400, request);

  const { sequences } = request;
  const job = { id: request.id, sequences };
  call.tie(job);
  if (body.stream === true) {
    const out = new StreamOut(
      call.openStream(),
      sequences,
      (delta) => dialect.events(request, delta),
      () => dialect.finale(request),
    );
    core.start(job, out);
  } else {
    core.start(job, new WholeOut(sequences.length, () => call.json(200, dialect.answer(request))));
  }
}

function read(call: HttpCall, body: Fields, isChat: boolean): OpenAiRequest | Problem {
  const { core } = call;
  const prompts = isChat ? readChatPrompt(body) : readPrompts(body.prompt, 'prompt');
  if (prompts instanceof Problem) return prompts;
  const sampling = readSampling(body, isChat ? chatNames : completionNames, core.nextUnseeded());
  if (sampling instanceof Problem) return sampling;
  const { maxTokens, samples } = sampling;
  if (maxTokens !== undefined && maxTokens < 1) {
    const message = `max_tokens must be at least 1, got ${maxTokens}.`;
    const isOfSchema = core.options.kind === 'sglang' && !isChat;
    return isOfSchema ? new SchemaProblem(message, 'body.max_tokens') : new Problem(message, 'max_tokens');
  }

  const isVllm = core.options.kind === 'vllm';
  const refusal = isVllm ? null : sglangRefusal(body, isChat);
  if (refusal !== null) return refusal;
  const promptLogprobs = isVllm ? readPromptLogprobs(core, body, body.stream === true) : null;
  if (promptLogprobs instanceof Problem) return promptLogprobs;
  const adapterName = adapterOf(body.model, core.options);
  const adapter = adapterName === '' ? null : core.adapterSampler(adapterName);
  if (adapterName !== '' && adapter === null) return unknownAdapter(adapterName);

  const id = requestId(call, body, isChat);
  const namespace = [body.cache_salt, body.extra_key, body.model === core.options.model ? '' : body.model]
    .map((part) => (typeof part === 'string' && part !== 'default' ? part : ''))
    .join('\n');
  const limit = core.scheduler.maxSequenceTokens;
  const sequences: Sequence[] = [];
  for (const [p, prompt] of prompts.prompts.entries()) {
    const tokens = maxTokens ?? (isChat ? limit - prompt.length : Math.min(completionMaxTokens, limit - prompt.length));
    if (tokens < 1 || prompt.length + tokens > limit) {
      return new Problem(
        `This model's maximum context length is ${limit} tokens. However, you requested ${maxTokens ?? 1} output ` +
          `tokens and your prompt contains at least ${prompt.length} input tokens.`,
        'input_tokens',
      );
    }
    for (let s = 0; s < samples; s += 1) {
      const sequence = new Sequence(sequenceId(call, id, isChat, p, s), prompt, sampling.sample(s, tokens), namespace);
      sequence.sampler = adapter;
      sequence.adapter = adapterName;
      sequences.push(sequence);
    }
  }

  const streamOptions = body.stream_options as
    | { include_usage?: unknown; continuous_usage_stats?: unknown }
    | null
    | undefined;
  return {
    core,
    id,
    created: Math.floor(Date.now() / 1000),
    model: typeof body.model === 'string' ? body.model : core.options.model,
    isChat,
    samples,
    sequences,
    topLogprobs: readTopLogprobs(body, isChat),
    promptLogprobs,
    tokensAsIds: body.return_tokens_as_token_ids === true,
    returnTokenIds: body.return_token_ids === true,
    returnVersions: body.return_weight_versions === true,
    expertsFrom: readExpertsFrom(body, isVllm),
    returnMetaInfo: body.return_meta_info === true,
    returnPromptIds: body.return_prompt_token_ids === true,
    extension: {
      inputIds: isChat && body.return_input_ids_in_sglext === true,
      outputIds: isChat && body.return_output_ids_in_sglext === true,
    },
    echo: !isChat && body.echo === true,
    includeUsage: streamOptions?.include_usage === true,
    continuousUsage: streamOptions?.continuous_usage_stats === true,
  };
}

function readChatPrompt(body: Fields): { prompts: number[][] } | Problem {
  // SGLang: ids instead of the rendered messages.
  if (body.input_ids !== undefined && body.input_ids !== null) return readPrompts(body.input_ids, 'input_ids', ['ids']);
  const messages = readMessages(body.messages);
  if (typeof messages === 'string') return new SchemaProblem(messages, 'body.messages');
  const text = renderChat(messages, {
    addGenerationPrompt: body.add_generation_prompt !== false,
    continueFinalMessage: body.continue_final_message === true,
  });
  return { prompts: [encode(text)] };
}

/** vLLM returns routed experts whenever it can, SGLang on request. */
function readExpertsFrom(body: Fields, isVllm: boolean): number | null {
  if (!isVllm && body.return_routed_experts !== true) return null;
  const from = isVllm ? body.routed_experts_prompt_start : body.routed_experts_start_len;
  return typeof from === 'number' ? from : 0;
}

/** What only SGLang (0.5.23) refuses. */
function sglangRefusal(body: Fields, isChat: boolean): Problem | null {
  if (body.top_k === 0) return new Problem('top_k must be -1 (disable) or at least 1, got 0.', 'top_k');
  if (!isChat || body.stream !== true) return null;
  const field = ['return_prompt_token_ids', 'return_token_ids', 'return_meta_info'].find((name) => body[name] === true);
  if (field === undefined) return null;
  return new Problem(`${field} is not supported with streaming on /v1/chat/completions. Please set stream=false.`);
}

function readTopLogprobs(body: Fields, isChat: boolean): number | null {
  const count = isChat ? body.top_logprobs : body.logprobs;
  if (isChat ? body.logprobs !== true : typeof count !== 'number') return null;
  return typeof count === 'number' ? Math.max(0, Math.min(count, 100)) : 0;
}

/** vLLM takes the id from the header, SGLang from `rid` in the body. */
function requestId(call: HttpCall, body: Fields, isChat: boolean): string {
  const random = (): string => randomUUID().replaceAll('-', '');
  if (call.core.options.kind === 'sglang') return typeof body.rid === 'string' ? body.rid : random();
  const given = call.header('x-request-id') ?? random().slice(0, 16);
  return `${isChat ? 'chatcmpl' : 'cmpl'}-${given}`;
}

/** The id for vLLM's /abort_requests: completions include the prompt's number (measured), samples have a prefix. */
function sequenceId(call: HttpCall, id: string, isChat: boolean, prompt: number, sample: number): string {
  if (call.core.options.kind === 'sglang') return id;
  const base = isChat ? id : `${id}-${prompt}`;
  return sample === 0 ? base : `${sample}_${base}`;
}

/** vLLM takes the name of an adapter for a model; SGLang 0.5.23 takes MODEL:ADAPTER. '' for none. */
function adapterOf(model: unknown, { kind, model: own }: SimOptions): string {
  if (typeof model !== 'string' || model === own) return '';
  return kind === 'vllm' ? model : model.includes(':') ? model.slice(model.indexOf(':') + 1) : '';
}
