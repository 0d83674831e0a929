/** OpenAI's `POST /v1/responses`. vLLM 0.32 returns token ids with `enable_response_messages`, SGLang never does. */

import { type ChatApi, type MadeChat, contentText, serveChat } from './chat-calls.ts';
import type { HttpCall } from './http-call.ts';
import { decode, piece } from '../tokens/tokenizer.ts';

/** vLLM: the prompt and the response as text, each with its ids. */
function rawMessages({ core }: HttpCall, { body, sequence }: MadeChat, isOver: boolean): object {
  if (core.options.kind !== 'vllm') return {};
  const isWanted = isOver && body.enable_response_messages === true;
  const raw = (ids: readonly number[]): object[] => [
    { message: decode([...ids], true), tokens: ids, type: 'raw_message_tokens' },
  ];
  return {
    input_messages: isWanted ? raw(sequence.prompt) : null,
    output_messages: isWanted ? raw(sequence.output) : null,
  };
}

function logprobs({ core }: HttpCall, { body, sequence }: MadeChat): object[] | null {
  const { include } = body;
  if (!Array.isArray(include) || !include.includes('message.output_text.logprobs')) return null;
  const { sampler } = core.scheduler;
  return sequence.output.map((id, i) => {
    const logprob = sampler.logprob(sequence.views[i]!, id);
    return { token: piece(id), logprob, bytes: [...Buffer.from(piece(id))], top_logprobs: [] };
  });
}

const itemOf = (call: HttpCall, made: MadeChat, status: string): object => ({
  id: `msg_${made.id}`,
  type: 'message',
  role: 'assistant',
  status,
  content: [{ type: 'output_text', text: made.sequence.text(), annotations: [], logprobs: logprobs(call, made) }],
});

function response(call: HttpCall, made: MadeChat, isOver: boolean): object {
  const { id, body, model, created, sequence } = made;
  const { finish, prompt, output } = sequence;
  const isCut = finish?.type === 'length';
  return {
    id,
    created_at: created,
    object: 'response',
    status: isOver ? (isCut ? 'incomplete' : 'completed') : 'in_progress',
    incomplete_details: isOver && isCut ? { reason: 'max_output_tokens' } : null,
    instructions: body.instructions ?? null,
    model,
    output: isOver ? [itemOf(call, made, 'completed')] : [],
    usage: isOver
      ? {
          input_tokens: prompt.length,
          input_tokens_details: { cached_tokens: Math.max(0, sequence.cachedTokens) },
          output_tokens: output.length,
          output_tokens_details: { reasoning_tokens: 0 },
          total_tokens: prompt.length + output.length,
        }
      : null,
    ...rawMessages(call, made, isOver),
  };
}

const api: ChatApi = {
  prefix: 'resp_',
  maxTokens: 'max_output_tokens',

  messages({ instructions, input }) {
    const own =
      typeof input === 'string'
        ? [{ role: 'user', content: input }]
        : Array.isArray(input)
          ? (input as { role?: string; content?: unknown }[]).map(({ role = 'user', content }) => {
              return { role, content: contentText(content) };
            })
          : null;
    if (own === null || own.length === 0) return 'input must be a text or a non-empty list';
    return typeof instructions === 'string' ? [{ role: 'system', content: instructions }, ...own] : own;
  },

  answer: (call, made) => response(call, made, true),

  events(call, made, { text, isFirst }) {
    const { finish } = made.sequence;
    const place = { item_id: `msg_${made.id}`, output_index: 0, content_index: 0 };
    const events: object[] = [];
    if (isFirst) {
      events.push({ type: 'response.created', response: response(call, made, false) });
      events.push({ type: 'response.in_progress', response: response(call, made, false) });
      const item = { id: place.item_id, type: 'message', role: 'assistant', status: 'in_progress', content: [] };
      events.push({ type: 'response.output_item.added', output_index: 0, item });
    }
    if (text !== '') events.push({ type: 'response.output_text.delta', ...place, delta: text, logprobs: [] });
    if (finish !== null) {
      events.push({ type: 'response.output_text.done', ...place, text: made.sequence.text(), logprobs: [] });
      events.push({ type: 'response.output_item.done', output_index: 0, item: itemOf(call, made, 'completed') });
      events.push({ type: 'response.completed', response: response(call, made, true) });
    }
    return events;
  },
};

export const responses = serveChat(api);
