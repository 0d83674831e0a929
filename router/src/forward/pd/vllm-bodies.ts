import { inference } from '../../engines/dialects/inference.ts';
import { LATER_BOUND, promptQuestions, vllmPairPaths } from '../../engines/dialects/pairs.ts';
import { type Members, withMembers, withoutMembers } from '../../kit/json-edit.ts';
import { Json } from '../../kit/json-members.ts';

/**
 * The client's request, as far as a prefill engine has to do with it: read the prompt, make one token, keep the KV.
 * @returns null: it is no JSON object
 */
export function prefillBody(path: string, body: Buffer, params: string): Buffer | null {
  // vLLM refuses them where nothing is streamed.
  const request = Json.object(withoutMembers(body, ['stream_options']));
  if (request === null) return null;
  const own = paramsOf(path, request);
  const bounds = vllmPairPaths.get(path)!;
  const hasLater = own === request && own.place(LATER_BOUND) !== null;
  const more = { stream: 'false', kv_transfer_params: params };
  return changed(request, own, hasLater ? [...bounds, LATER_BOUND] : bounds, '1', more);
}

/** The client asked for a stream. A prefill engine gets its request without that. */
export const asksForStream = (body: Buffer): boolean => Json.object(body)?.get('stream')?.isTrue === true;

/** The client's request with what leads its decode engine to the KV. null: it is no JSON object. */
export function decodeBody(path: string, body: Buffer, params: Buffer | string): Buffer | null {
  const request = Json.object(body);
  if (request === null) return null;
  const own = paramsOf(path, request);
  const asked = promptQuestions.filter((name) => own.place(name) !== null);
  return changed(request, own, asked, 'null', { kv_transfer_params: params });
}

const NESTED = inference.request.params!;
const EMPTY = Json.object(Buffer.from('{}'))!;

/** The object with bounds and questions: the request, or one in it. */
const paramsOf = (path: string, request: Json): Json =>
  path === inference.path ? (request.get(NESTED) ?? EMPTY) : request;

/** @param names of members of `own` that get the value */
function changed(request: Json, own: Json, names: readonly string[], value: string, more: Members): Buffer | null {
  const set: Members = Object.fromEntries(names.map((name) => [name, value]));
  if (own === request) return withMembers(request.bytes, { ...set, ...more });
  if (names.length === 0) return withMembers(request.bytes, more);
  const nested = withMembers(own.raw(), set);
  return nested === null ? null : withMembers(request.bytes, { [NESTED]: nested, ...more });
}
