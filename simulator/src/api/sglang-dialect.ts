/** The OpenAI endpoints as SGLang 0.5.23 serves them. */

import { routedExperts } from './routed-experts.ts';
import { countTokens, type OpenAiDialect, type OpenAiRequest } from './openai-dialect.ts';
import { chatLogprobs, completionLogprobs } from './openai-logprobs.ts';
import type { Finish, Sequence } from '../model/sequence.ts';
import { metaInfo } from './sglang-meta.ts';
import { decode } from '../tokens/tokenizer.ts';

export const sglangDialect: OpenAiDialect = {
  answer(request) {
    return {
      ...top(request, request.isChat ? 'chat.completion' : 'text_completion'),
      choices: request.sequences.map((sequence, index) =>
        request.isChat ? chatChoice(request, sequence, index) : completionChoice(request, sequence, index),
      ),
      usage: usage(request),
      metadata: {
        weight_version: request.core.weightVersion,
        weight_versions: request.sequences[0]!.spans,
      },
      ...extension(request),
    };
  },

  events(request, { sequence, index, from, to, text, isFirst }) {
    const finish = sequence.finish;
    if (!request.isChat) {
      const choice = {
        index,
        text: isFirst && request.echo ? decode(sequence.prompt, false) + text : text,
        logprobs: completionLogprobs(request, sequence, from, to, false),
        finish_reason: finish?.type ?? null,
        matched_stop: matchedStop(finish),
        ...(request.returnTokenIds ? { token_ids: sequence.output.slice(from, to) } : {}),
        ...(request.returnTokenIds && isFirst ? { prompt_token_ids: sequence.prompt } : {}),
      };
      return [{ ...top(request, 'text_completion'), choices: [choice], usage: null }];
    }
    const event = (delta: object, logprobs: object | null, ended: Finish | null): object => ({
      ...top(request, 'chat.completion.chunk'),
      choices: [
        {
          index,
          delta: { reasoning_content: null, ...delta },
          logprobs,
          finish_reason: ended?.type ?? null,
          matched_stop: matchedStop(ended),
        },
      ],
      ...(request.continuousUsage && ended === null && !('role' in delta) ? { usage: usageSoFar(sequence, to) } : {}),
    });
    const events: object[] = [];
    if (isFirst) events.push(event({ role: 'assistant', content: '' }, null, null));
    // Tokens without text make no event, and their ids and logprobs are lost.
    if (text !== '') events.push(event({ content: text }, chatLogprobs(request, sequence, from, to), null));
    // Unlike vLLM it sends the finish reason in a separate event.
    if (finish) events.push(event({}, null, finish));
    return events;
  },

  finale(request) {
    const object = request.isChat ? 'chat.completion.chunk' : 'text_completion';
    const events: object[] = [];
    const ids = extension(request);
    if ('sglext' in ids) events.push({ ...top(request, object), choices: [], ...ids });
    if (request.includeUsage) events.push({ ...top(request, object), choices: [], usage: usage(request) });
    return events;
  },
};

/** The requested ids and routed experts; nothing if none were requested. Experts are those of the first choice. */
function extension(request: OpenAiRequest): { sglext?: object } {
  const {
    extension: { inputIds, outputIds },
    sequences,
    expertsFrom,
    returnMetaInfo,
  } = request;
  const experts =
    expertsFrom === null || returnMetaInfo ? null : routedExperts(request.core, sequences[0]!, expertsFrom);
  if (!inputIds && !outputIds && experts === null) return {};
  return {
    sglext: {
      ...(experts === null ? {} : { routed_experts: experts }),
      ...(inputIds ? { input_ids: sequences[0]!.prompt } : {}),
      ...(outputIds ? { output_ids: sequences.map(({ output }) => output) } : {}),
    },
  };
}

function top(request: OpenAiRequest, object: string): object {
  return { id: request.id, object, created: request.created, model: request.model };
}

/** As with --enable-cache-report, without which prompt_tokens_details is null. */
function usage(request: OpenAiRequest): object {
  const { counts, cached } = countTokens(request);
  return { ...counts, prompt_tokens_details: { cached_tokens: cached }, reasoning_tokens: 0 };
}

function usageSoFar({ prompt }: Sequence, completion: number): object {
  const total = prompt.length + completion;
  const counts = { prompt_tokens: prompt.length, total_tokens: total, completion_tokens: completion };
  return { ...counts, prompt_tokens_details: null, reasoning_tokens: 0 };
}

function matchedStop(finish: Finish | null): string | number | null {
  return finish?.type === 'stop' ? finish.matched : null;
}

function completionChoice(request: OpenAiRequest, sequence: Sequence, index: number): object {
  return {
    index,
    text: request.echo ? decode(sequence.prompt, false) + sequence.text() : sequence.text(),
    logprobs: completionLogprobs(request, sequence, 0, sequence.output.length, false),
    finish_reason: sequence.finish?.type ?? null,
    matched_stop: matchedStop(sequence.finish),
    ...(request.returnTokenIds ? { token_ids: sequence.output, prompt_token_ids: sequence.prompt } : {}),
  };
}

function chatChoice(request: OpenAiRequest, sequence: Sequence, index: number): object {
  const show = { logprobs: true, startLen: -1, top: request.topLogprobs ?? 0, text: true };
  const experts = request.expertsFrom === null ? null : routedExperts(request.core, sequence, request.expertsFrom);
  return {
    index,
    message: {
      role: 'assistant',
      content: sequence.text(),
      reasoning_content: null,
    },
    logprobs: chatLogprobs(request, sequence, 0, sequence.output.length),
    finish_reason: sequence.finish?.type ?? null,
    matched_stop: matchedStop(sequence.finish),
    ...(request.returnTokenIds || request.returnPromptIds ? { prompt_token_ids: sequence.prompt } : {}),
    ...(request.returnTokenIds ? { response_token_ids: sequence.output } : {}),
    ...(request.returnMetaInfo
      ? {
          meta_info: {
            ...metaInfo(request.core, sequence, show),
            ...(experts === null ? {} : { routed_experts: experts }),
          },
        }
      : {}),
  };
}
