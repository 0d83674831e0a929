import { createHash } from 'node:crypto';
import { JsonEdit, withMembers } from '../../kit/json-edit.ts';
import { Json } from '../../kit/json-members.ts';
import type { EngineKind } from '../engine.ts';

const RANK = 'data_parallel_rank';
/** By which field an engine separates its prompt caches (vLLM 0.33; SGLang 0.5.23, whose /generate takes no cache_salt in older releases). */
const NAMESPACES = { vllm: 'cache_salt', sglang: 'extra_key' } as const;
/** The salts that the router makes begin so: the KV events of vLLM name the salt of a prompt. */
const MADE = 'turnout:';

/**
 * The body with a rank, for SGLang's /generate. The client's own bytes stay as they are.
 * @returns the same buffer if the body is not a JSON object or names a rank
 */
export function withRank(body: Buffer, rank: number): Buffer {
  const request = Json.object(body);
  if (request === null || request.place(RANK) !== null || request.place('routed_dp_rank') !== null) return body;
  const inside = body.indexOf('{') + 1;
  const edit = new JsonEdit(body);
  edit.replace(inside, inside, `"${RANK}":${rank}${request.isEmpty ? '' : ','}`);
  return edit.result();
}

/**
 * The body with another model. All other bytes stay.
 * @returns the same buffer if the body is not a JSON object
 */
export const withModel = (body: Buffer, model: string): Buffer =>
  withMembers(body, { model: JSON.stringify(model) }) ?? body;

/**
 * A request's body with its prompt-cache namespace for this kind of engine. The client's own field and its `prompt_cache_isolation_key` are
 * parts of it: requests share a cache only if all three are equal.
 * @param namespace '' adds nothing of the router's own
 * @returns the same buffer if there is nothing to add
 */
export function withNamespace(body: Buffer, engine: EngineKind | null, namespace: string): Buffer {
  if (engine !== 'vllm' && engine !== 'sglang') return body;
  const request = Json.object(body);
  if (request === null) return body;
  const isolation = request.get('prompt_cache_isolation_key')?.text() ?? '';
  if (namespace === '' && isolation === '') return body;
  const name = NAMESPACES[engine];
  const own = request.get(name);
  const digest = (key: Json | null): string => JSON.stringify(digestOf([namespace, isolation, key?.text() ?? '']));
  // SGLang takes one key for each prompt of a list.
  const value = own?.isList === true ? `[${own.items().map(digest).join()}]` : digest(own);
  return withMembers(body, { [name]: value })!;
}

/** Whether the router made the salt, of a namespace or an isolation key. */
export const isMadeSalt = (salt: string): boolean => salt.startsWith(MADE);

const digestOf = (parts: readonly string[]): string =>
  MADE + createHash('sha256').update(JSON.stringify(parts)).digest('base64url');
