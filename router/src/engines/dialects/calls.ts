import { logprobOf } from '../../generation/delta.ts';

export const CHAT_PATH = '/v1/chat/completions';
export const MESSAGES_PATH = '/v1/messages';
export const RESPONSES_PATH = '/v1/responses';

/** The contents of a response of `/v1/messages` or `/v1/responses`. */
export interface CallAnswer {
  /** The text of the model, without reasoning and tool calls. */
  readonly text: string;
  /** The engine's finish reason; null: the response is truncated. */
  readonly finishReason: string | null;
  /** The engine's count; null: not returned. */
  readonly promptTokens: number | null;
  readonly outputTokens: number | null;
  readonly cachedTokens: number | null;
  /** null: the response does not have all ids of prompt and output. */
  readonly tokens: CallTokens | null;
}

export interface CallTokens {
  readonly prompt: readonly number[];
  readonly sampled: readonly number[];
  /** null: not requested. */
  readonly logprobs: Float64Array | null;
}

/** @param values the response, or the received events of a stream */
export const readCall = (path: string, values: readonly object[]): CallAnswer =>
  path === MESSAGES_PATH ? readMessages(values) : readResponses(values);

interface MessagesUsage {
  readonly input_tokens?: number | null;
  readonly output_tokens?: number | null;
  readonly cache_read_input_tokens?: number | null;
  readonly cache_creation_input_tokens?: number | null;
}

interface Block {
  readonly type?: string;
  readonly text?: string | null;
}

/** A message, or an event of its stream (Anthropic's API of 2023-06-01). */
interface MessagesPart {
  readonly content?: readonly Block[] | null;
  readonly stop_reason?: string | null;
  readonly usage?: MessagesUsage | null;
  readonly message?: MessagesPart | null;
  readonly content_block?: Block | null;
  readonly delta?: (Block & { readonly stop_reason?: string | null }) | null;
}

function readMessages(parts: readonly MessagesPart[]): CallAnswer {
  let text = '';
  let finishReason: string | null = null;
  let promptTokens: number | null = null;
  let outputTokens: number | null = null;
  let cachedTokens: number | null = null;
  for (const part of parts) {
    for (const { content, delta, content_block: block, stop_reason: reason, usage } of [part, part.message ?? {}]) {
      for (const each of [...(content ?? []), block, delta]) if (isText(each)) text += each.text;
      finishReason = delta?.stop_reason ?? reason ?? finishReason;
      promptTokens = promptTokensOf(usage ?? {}) ?? promptTokens;
      outputTokens = usage?.output_tokens ?? outputTokens;
      cachedTokens = usage?.cache_read_input_tokens ?? cachedTokens;
    }
  }
  return { text, finishReason, promptTokens, outputTokens, cachedTokens, tokens: null };
}

/** Tokens of the prompt that were in the cache are counted apart. */
const promptTokensOf = ({
  input_tokens: own,
  cache_read_input_tokens: read,
  cache_creation_input_tokens: made,
}: MessagesUsage): number | null => (own == null ? null : own + (read ?? 0) + (made ?? 0));

const isText = (block: Block | null | undefined): block is Block & { text: string } =>
  (block?.type === 'text' || block?.type === 'text_delta') && typeof block.text === 'string';

interface OutputItem {
  readonly type?: string;
  readonly content?:
    | readonly {
        readonly type?: string;
        readonly text?: string;
        readonly logprobs?: readonly { readonly logprob?: number | null }[] | null;
      }[]
    | null;
}

/** vLLM, with `enable_response_messages`: the input and output of the model, with ids. */
interface RawMessage {
  readonly type?: string;
  readonly tokens?: readonly number[];
}

/** A response, or an event of its stream. */
interface ResponsesPart {
  readonly type?: string;
  readonly delta?: string;
  readonly response?: ResponsesPart | null;
  readonly status?: string | null;
  readonly incomplete_details?: { readonly reason?: string | null } | null;
  readonly output?: readonly OutputItem[] | null;
  readonly usage?: {
    readonly input_tokens?: number | null;
    readonly input_tokens_details?: { readonly cached_tokens?: number | null } | null;
    readonly output_tokens?: number | null;
  } | null;
  readonly input_messages?: readonly RawMessage[] | null;
  readonly output_messages?: readonly RawMessage[] | null;
}

const ENDS: ReadonlySet<string> = new Set(['response.completed', 'response.incomplete', 'response.failed']);

function readResponses(parts: readonly ResponsesPart[]): CallAnswer {
  const last = parts.findLast(({ type = '' }) => ENDS.has(type));
  const whole = last?.response ?? parts.find(({ output }) => Array.isArray(output)) ?? null;
  if (whole === null) {
    const text = parts.map(({ type, delta = '' }) => (type === 'response.output_text.delta' ? delta : '')).join('');
    return { text, finishReason: null, promptTokens: null, outputTokens: null, cachedTokens: null, tokens: null };
  }
  const { usage } = whole;
  const content = (whole.output ?? []).flatMap((item) => (item.type === 'message' ? (item.content ?? []) : []));
  return {
    text: content.map(({ type, text = '' }) => (type === 'output_text' ? text : '')).join(''),
    finishReason: whole.incomplete_details?.reason ?? whole.status ?? null,
    promptTokens: usage?.input_tokens ?? null,
    outputTokens: usage?.output_tokens ?? null,
    cachedTokens: usage?.input_tokens_details?.cached_tokens ?? null,
    tokens: tokensOf(
      whole,
      content.flatMap(({ logprobs }) => logprobs ?? []),
    ),
  };
}

/**
 * One prompt and one output with the lengths that the engine counts. An engine that calls tools itself has several outputs, and one that
 * uses Harmony returns no ids.
 */
function tokensOf(
  { input_messages: input, output_messages: output, usage }: ResponsesPart,
  logprobs: readonly { readonly logprob?: number | null }[],
): CallTokens | null {
  const prompt = idsOf(input);
  const sampled = idsOf(output);
  if (prompt === null || sampled === null || prompt.length === 0) return null;
  if (prompt.length !== usage?.input_tokens || sampled.length !== usage.output_tokens) return null;
  const isComplete = sampled.length > 0 && logprobs.length === sampled.length;
  return {
    prompt,
    sampled,
    logprobs: isComplete ? Float64Array.from(logprobs, ({ logprob }) => logprobOf(logprob)) : null,
  };
}

function idsOf(messages: readonly RawMessage[] | null | undefined): readonly number[] | null {
  const [only, ...others] = messages ?? [];
  return others.length === 0 && only?.type === 'raw_message_tokens' ? (only.tokens ?? null) : null;
}
