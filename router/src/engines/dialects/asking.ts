import { withoutMembers } from '../../kit/json-edit.ts';
import { Json } from '../../kit/json-members.ts';
import type { EngineKind } from '../engine.ts';
import { SOME_IDS } from './completions.ts';

/** What is needed of a response to a chat or a completion, beside what its client asked for. */
interface Needs {
  readonly ids: boolean;
  /** Routed experts, without those of so many tokens at the beginning; null: not needed. */
  readonly expertsFrom: number | null;
  /** Logprobs of a chat's prompt, with so many of the likeliest tokens (vLLM); null: not needed. */
  readonly promptTop: number | null;
  /** Which weights sampled which tokens (vLLM 0.33; older releases ignore it). */
  readonly versions: boolean;
  /** A chat's choices with what `/generate` returns (SGLang). */
  readonly info: boolean;
}

/** The members of a request that ask an engine for it. */
export function membersFor(
  engine: EngineKind,
  { ids, expertsFrom, promptTop, versions, info }: Needs,
): Readonly<Record<string, string>> {
  const first = expertsFrom === null || expertsFrom === 0 ? null : String(expertsFrom);
  const asked = ids ? SOME_IDS : {};
  if (engine === 'sglang') {
    return {
      ...asked,
      ...(info && { return_meta_info: 'true' }),
      ...(expertsFrom !== null && { return_routed_experts: 'true' }),
      ...(first !== null && { routed_experts_start_len: first }),
    };
  }
  return {
    ...asked,
    ...(versions && { return_weight_versions: 'true' }),
    ...(promptTop !== null && { prompt_logprobs: String(promptTop) }),
    ...(first !== null && { routed_experts_prompt_start: first }),
  };
}

/** Members of a choice or a response that are returned on request, each with the member of the request. */
const ON_REQUEST = {
  meta_info: 'return_meta_info',
  prompt_logprobs: 'prompt_logprobs',
  weight_versions: 'return_weight_versions',
} as const;
const EXPERTS = 'return_routed_experts';

/** Members that a client set itself: it gets what they ask for. */
export const askedBy = (request: Json): readonly string[] =>
  [...Object.values(ON_REQUEST), EXPERTS].filter(
    (name) => request.get(name) !== null && request.get(name)?.scalar() !== 'false',
  );

/** The client itself asks for the ids of sampled tokens. */
export const asksForIds = (request: Json): boolean =>
  Object.keys(SOME_IDS).every((name) => request.get(name)?.isTrue === true);

type Draft = Map<string, Buffer>;

/** Removes from a choice, or a response, what its client did not ask for. */
export function hideUnasked(members: Draft, asked: readonly string[]): void {
  for (const [name, request] of Object.entries(ON_REQUEST)) if (!asked.includes(request)) members.delete(name);
}

/** Removes SGLang's routed experts from a response, unless its client asked for them. */
export function hideExperts(answer: Draft, asked: readonly string[]): void {
  const extension = answer.get('sglext');
  if (extension === undefined || asked.includes(EXPERTS)) return;
  const left = withoutMembers(extension, ['routed_experts']);
  if (Json.object(left)?.isEmpty === true) answer.delete('sglext');
  else answer.set('sglext', left);
}

/** Removes the ids of tokens from a choice, or a response. */
export function hideIds(members: Draft): void {
  for (const name of ['token_ids', 'response_token_ids', 'prompt_token_ids']) members.delete(name);
}
