import type { EngineKind } from '../engine.ts';
import { type Members, withMembers, withoutMembers } from '../../kit/json-edit.ts';
import { truthOf } from '../../kit/truth.ts';
import { CHAT_PATH } from './calls.ts';
import { SOME_IDS, completions } from './completions.ts';

/** A request to `/v1/chat/completions`. */
export interface ChatBody {
  readonly body: Buffer;
  readonly isStream: boolean;
  /** Its members. */
  readonly fields: Readonly<Record<string, unknown>>;
}

/** The request for an engine, and the parts of its response that only the router asked for. */
export interface EngineRequest {
  readonly body: Buffer;
  /** The path, without the query. */
  readonly path: string;
  /** `chat`: the response is that of a chat. `completion`: it is converted to one. */
  readonly form: 'chat' | 'completion';
  /** The router makes the prompt's ids; else the engine renders the messages and returns the ids. */
  readonly isExact: boolean;
}

export interface EngineOptions {
  /** 0: not known. */
  readonly maxModelLen: number;
  /** False: the engine always renders. */
  readonly takesIds: boolean;
  /** Routed experts are for the record only. */
  readonly hidesExperts: boolean;
  /** Texts never have the stop token, whatever the request, as with miles' session server, whose drivers ask for it. */
  readonly trimsStop: boolean;
}

/** What the client asked for itself. */
export type RequestedFields = Readonly<Record<string, unknown>>;

/** Members that `/v1/completions` ignores or reads differently. */
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
  request: ChatBody,
  ids: Int32Array | null,
  { hidesExperts, trimsStop }: EngineOptions,
): EngineRequest {
  const { fields, isStream } = request;
  const wantsExperts = truthOf(fields.return_routed_experts) === true && !hidesExperts;
  // With `meta_info` it returns routed experts only there, where a client that did not ask for it does not look.
  const isExtended = isStream || (wantsExperts && truthOf(fields.return_meta_info) !== true);
  const requested: Record<string, string> = isExtended
    ? { logprobs: 'true', return_output_ids_in_sglext: 'true' }
    : { logprobs: 'true', return_meta_info: 'true' };
  // SGLang leaves out events without text, with their token ids: the counts show that ids are missing.
  if (isStream) requested.stream_options = JSON.stringify({ ...optionsOf(fields), continuous_usage_stats: true });
  if (trimsStop && truthOf(fields.no_stop_trim) === true) requested.no_stop_trim = 'false';
  if (ids !== null) requested.input_ids = `[${ids.join(',')}]`;
  else if (isExtended) requested.return_input_ids_in_sglext = 'true';
  else requested.return_prompt_token_ids = 'true';
  return { body: setting(request.body, requested), path: CHAT_PATH, form: 'chat', isExact: ids !== null };
}

/**
 * vLLM 0.32 takes ids as the prompt of a completion only. Only its chat endpoint parses tools and reasoning: for these it renders the
 * messages itself and returns the ids.
 * @param maxModelLen 0: not known
 */
function forVllm(request: ChatBody, ids: Int32Array | null, maxModelLen: number): EngineRequest {
  const { fields } = request;
  const limit = fields.max_completion_tokens ?? fields.max_tokens ?? null;
  // Without a limit a completion has 16 tokens, and a chat as many as fit.
  const maxTokens = limit ?? (ids !== null && maxModelLen > ids.length ? maxModelLen - ids.length : null);
  if (ids === null || maxTokens === null) {
    const body = setting(request.body, { logprobs: 'true', ...SOME_IDS });
    return { body, path: CHAT_PATH, form: 'chat', isExact: false };
  }
  const top = truthOf(fields.logprobs) === true && typeof fields.top_logprobs === 'number' ? fields.top_logprobs : 0;
  const body = setting(withoutMembers(request.body, CHAT_ONLY), {
    prompt: `[${ids.join(',')}]`,
    max_tokens: JSON.stringify(maxTokens),
    logprobs: String(top),
    ...SOME_IDS,
  });
  return { body, path: completions.path, form: 'completion', isExact: true };
}

const optionsOf = ({ stream_options: options }: ChatBody['fields']): object =>
  typeof options === 'object' && options !== null ? options : {};

/** A chat's body is an object: it was read. */
const setting = (body: Buffer, members: Members): Buffer => withMembers(body, members)!;

/** @param ids null: they are not known */
export function engineRequest(
  kind: EngineKind,
  request: ChatBody,
  ids: Int32Array | null,
  options: EngineOptions,
): EngineRequest {
  const { maxModelLen, takesIds } = options;
  const given = takesIds ? ids : null;
  if (kind !== 'vllm') return forSglang(request, given, options);
  // Also with a `tool_choice` of "none": SGLang leaves tools out of the prompt then, vLLM depending on an option.
  const { tools } = request.fields;
  const hasTools = Array.isArray(tools) && tools.length > 0;
  return forVllm(request, hasTools ? null : given, maxModelLen);
}

/** Members on which it depends what of a response the client gets. */
const REQUESTED = ['top_logprobs', 'prompt_logprobs', 'stream_options'];
const REQUESTED_TRUTHS = [
  'logprobs',
  'return_meta_info',
  'return_prompt_token_ids',
  'return_token_ids',
  'return_output_ids_in_sglext',
  'return_input_ids_in_sglext',
];

export const requestedFields = ({ fields }: Pick<ChatBody, 'fields'>): RequestedFields =>
  Object.fromEntries([
    ...REQUESTED.map((name) => [name, fields[name] ?? null]),
    ...REQUESTED_TRUTHS.map((name) => [name, truthOf(fields[name])]),
  ]);

/** Members of a request for the ids of sampled tokens; SGLang (0.5.23) returns those of a stream at its end only. */
export const chatIds: Members = { ...SOME_IDS, return_output_ids_in_sglext: 'true' };

/** @returns members in place of `asked`, for an engine that refused those; null: the engine refused something else. SGLang 0.5.23, for streams. */
export function withoutRefused(asked: Members, refusal: string): Members | null {
  const { return_token_ids: refused, ...others } = asked;
  return refused !== undefined && refusal.includes('return_token_ids is not supported with streaming') ? others : null;
}
