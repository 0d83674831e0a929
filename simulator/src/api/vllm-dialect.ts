/** The OpenAI endpoints as vLLM 0.32 serves them. */

import { routedExperts } from './routed-experts.ts';
import { countTokens, type OpenAiDialect, type OpenAiRequest } from './openai-dialect.ts';
import { chatLogprobs, completionLogprobs } from './openai-logprobs.ts';
import { vllmPromptLogprobs } from './prompt-scores.ts';
import type { Finish, Sequence } from '../model/sequence.ts';
import { decode, endOfTurn } from '../tokens/tokenizer.ts';

export const vllmDialect: OpenAiDialect = {
  answer(request) {
    const head = { ...top(request, request.isChat ? 'chat.completion' : 'text_completion') };
    const { counts, cached } = countTokens(request);
    return {
      ...head,
      choices: request.sequences.map((sequence, index) =>
        request.isChat ? chatChoice(request, sequence, index) : completionChoice(request, sequence, index),
      ),
      service_tier: null,
      system_fingerprint: fingerprint,
      usage: {
        ...counts,
        prompt_tokens_details: {
          cached_tokens: cached,
          created_cache_tokens: null,
          multimodal_tokens: null,
        },
        completion_tokens_details: null,
      },
      ...(request.isChat
        ? {
            prompt_logprobs: vllmPromptLogprobs(request.core, request.sequences[0]!, request.promptLogprobs),
            prompt_token_ids: request.returnTokenIds ? request.sequences[0]!.prompt : null,
            prompt_text: null,
          }
        : {}),
      kv_transfer_params: null,
      ec_transfer_params: null,
      metrics: null,
    };
  },

  events(request, { sequence, index, from, to, text, isFirst }) {
    const finish = sequence.finish;
    const tokenIds = request.returnTokenIds ? sequence.output.slice(from, to) : null;
    // An abort before the first token is no event (0.32).
    const isEmpty = sequence.output.length === 0;
    if (!request.isChat) {
      if (isEmpty) return [];
      const choice = {
        index,
        text: isFirst ? echoed(request, sequence) + text : text,
        logprobs: completionLogprobs(request, sequence, from, to, true),
        finish_reason: finish?.type ?? null,
        stop_reason: stopReason(finish),
        prompt_token_ids: request.returnTokenIds && isFirst ? sequence.prompt : null,
        token_ids: tokenIds,
        ...(finish ? versions(request, sequence) : {}),
      };
      return [{ ...top(request, 'text_completion'), choices: [choice] }];
    }
    const events: object[] = [];
    if (isFirst) {
      events.push({
        ...top(request, 'chat.completion.chunk'),
        choices: [{ index, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null }],
        prompt_token_ids: request.returnTokenIds ? sequence.prompt : null,
      });
    }
    if (isEmpty) return events;
    events.push({
      ...top(request, 'chat.completion.chunk'),
      choices: [
        {
          index,
          delta: { content: text },
          logprobs: chatLogprobs(request, sequence, from, to),
          finish_reason: finish?.type ?? null,
          ...(finish ? { stop_reason: stopReason(finish), ...versions(request, sequence) } : {}),
          token_ids: tokenIds,
        },
      ],
    });
    return events;
  },

  finale(request) {
    if (!request.includeUsage) return [];
    const { counts, cached } = countTokens(request);
    return [
      {
        ...top(request, request.isChat ? 'chat.completion.chunk' : 'text_completion'),
        choices: [],
        usage: { ...counts, prompt_tokens_details: { cached_tokens: cached } },
      },
    ];
  },
};

const fingerprint = 'turnout-sim';

function top(request: OpenAiRequest, object: string): object {
  return { id: request.id, object, created: request.created, model: request.model };
}

/** The stop text or id that matched; null if the turn ended by itself. */
function stopReason(finish: Finish | null): string | number | null {
  return finish?.type === 'stop' && finish.matched !== endOfTurn ? finish.matched : null;
}

const versions = ({ returnVersions }: OpenAiRequest, { spans }: Sequence): object =>
  returnVersions ? { weight_versions: spans } : {};

/** With ids in the response the prompt is not in the text (0.33). */
const echoed = ({ echo, returnTokenIds }: OpenAiRequest, { prompt }: Sequence): string =>
  echo && !returnTokenIds ? decode(prompt, false) : '';

function completionChoice(request: OpenAiRequest, sequence: Sequence, index: number): object {
  return {
    index,
    text: echoed(request, sequence) + sequence.text(),
    logprobs: completionLogprobs(request, sequence, 0, sequence.output.length, true),
    finish_reason: sequence.finish?.type ?? null,
    stop_reason: stopReason(sequence.finish),
    token_ids: request.returnTokenIds ? sequence.output : null,
    prompt_logprobs: vllmPromptLogprobs(request.core, sequence, request.promptLogprobs),
    prompt_token_ids: request.returnTokenIds ? sequence.prompt : null,
    routed_experts: routedExperts(request.core, sequence, request.expertsFrom ?? 0),
    ...versions(request, sequence),
  };
}

function chatChoice(request: OpenAiRequest, sequence: Sequence, index: number): object {
  return {
    index,
    message: {
      role: 'assistant',
      content: sequence.text(),
      refusal: null,
      annotations: null,
      audio: null,
      function_call: null,
      reasoning: null,
    },
    logprobs: chatLogprobs(request, sequence, 0, sequence.output.length),
    finish_reason: sequence.finish?.type ?? null,
    stop_reason: stopReason(sequence.finish),
    token_ids: request.returnTokenIds ? sequence.output : null,
    routed_experts: routedExperts(request.core, sequence, request.expertsFrom ?? 0),
    ...versions(request, sequence),
  };
}
