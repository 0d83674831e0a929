import type { EngineKind } from '../../../engines/engine.ts';
import { type Members, withMembers, withoutMembers } from '../../../kit/json-edit.ts';
import { CHAT_PATH, type ChatRequest } from '../../shared/chat-request.ts';

/** How an engine gets a chat, and what of its answer only the router asked for. */
export interface EngineRequest {
  readonly body: Buffer;
  /** Where it goes, without the query. */
  readonly path: string;
  /** `chat`: the answer is a chat's. `completion`: it is to be made one. */
  readonly form: 'chat' | 'completion';
  /** The router makes the prompt's ids; else the engine renders the messages and returns the ids. */
  readonly isExact: boolean;
}

export interface EngineOptions {
  /** 0: not known. */
  readonly maxModelLen: number;
  /** false: the engine renders, whatever the request. */
  readonly takesIds: boolean;
  /** Routed experts are for the record alone. */
  readonly hidesExperts: boolean;
  /** No stop token stands in a text, whatever the request: as miles' session server has it, whose drivers ask for one. */
  readonly trimsStop: boolean;
}

/** What its client asked for itself. */
export type ChatWishes = Readonly<Record<string, unknown>>;

/** What `/v1/completions` has no use for, or reads in another way. */
const CHAT_ONLY = [
  'messages',
  'prompt',
  'tools',
  'tool_choice',
  'parallel_tool_calls',
  'logprobs',
  'top_logprobs',
  'max_tokens',
  'max_completion_tokens',
  'return_token_ids',
  'echo',
  'suffix',
  'add_generation_prompt',
  'add_special_tokens',
  'chat_template_kwargs',
  'reasoning_effort',
  'include_reasoning',
];

/**
 * SGLang 0.5.23 takes `input_ids` beside the messages of a chat. Whole answers have ids in `meta_info`, streams in `sglext`.
 * @param ids null: the engine renders
 */
function forSglang(
  request: ChatRequest,
  ids: Int32Array | null,
  { hidesExperts, trimsStop }: EngineOptions,
): EngineRequest {
  const { fields, isStream } = request;
  const wantsExperts = fields.return_routed_experts === true && !hidesExperts;
  // With `meta_info` it returns routed experts only there, where a client that did not ask for it does not look.
  const isExtended = isStream || (wantsExperts && fields.return_meta_info !== true);
  const wishes: Record<string, string> = isExtended
    ? { logprobs: 'true', return_output_ids_in_sglext: 'true' }
    : { logprobs: 'true', return_meta_info: 'true' };
  // An event without text is left out by it, with what is known of its tokens: counts tell that they are missing.
  if (isStream) wishes.stream_options = JSON.stringify({ ...optionsOf(fields), continuous_usage_stats: true });
  if (trimsStop && fields.no_stop_trim === true) wishes.no_stop_trim = 'false';
  if (ids !== null) wishes.input_ids = `[${ids.join(',')}]`;
  else if (isExtended) wishes.return_input_ids_in_sglext = 'true';
  else wishes.return_prompt_token_ids = 'true';
  return { body: setting(request.body, wishes), path: CHAT_PATH, form: 'chat', isExact: ids !== null };
}

/**
 * vLLM 0.32 takes ids as the prompt of a completion only. Tools are parsed by its chat alone, and a reasoning parser would be too: then
 * it renders itself, and tells what it read.
 * @param maxModelLen 0: not known
 */
function forVllm(request: ChatRequest, ids: Int32Array | null, maxModelLen: number): EngineRequest {
  const { fields } = request;
  const limit = fields.max_completion_tokens ?? fields.max_tokens ?? null;
  // A completion without a limit is one of 16 tokens, a chat one without end.
  const maxTokens = limit ?? (ids !== null && maxModelLen > ids.length ? maxModelLen - ids.length : null);
  if (ids === null || maxTokens === null) {
    const body = setting(request.body, { logprobs: 'true', return_token_ids: 'true' });
    return { body, path: CHAT_PATH, form: 'chat', isExact: false };
  }
  const top = fields.logprobs === true && typeof fields.top_logprobs === 'number' ? fields.top_logprobs : 0;
  const body = setting(withoutMembers(request.body, CHAT_ONLY), {
    prompt: `[${ids.join(',')}]`,
    max_tokens: JSON.stringify(maxTokens),
    logprobs: String(top),
    return_token_ids: 'true',
  });
  return { body, path: '/v1/completions', form: 'completion', isExact: true };
}

const optionsOf = ({ stream_options: options }: ChatRequest['fields']): object =>
  typeof options === 'object' && options !== null ? options : {};

/** A chat's body is an object: it was read. */
const setting = (body: Buffer, members: Members): Buffer => withMembers(body, members)!;

/** @param ids null: they are not known */
export function engineRequest(
  kind: EngineKind,
  request: ChatRequest,
  ids: Int32Array | null,
  options: EngineOptions,
): EngineRequest {
  const { maxModelLen, takesIds } = options;
  const given = takesIds ? ids : null;
  if (kind !== 'vllm') return forSglang(request, given, options);
  // With a `tool_choice` of "none" too: SGLang leaves tools out of the prompt then, vLLM as it was started to.
  const { tools } = request.fields;
  const hasTools = Array.isArray(tools) && tools.length > 0;
  return forVllm(request, hasTools ? null : given, maxModelLen);
}
