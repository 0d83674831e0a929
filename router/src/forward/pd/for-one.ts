import { promptFields, tokensIn } from '../../classify/prompt.ts';
import { RESPONSES_PATH } from '../../engines/dialects/calls.ts';
import { Json } from '../../kit/json-members.ts';

/** `input` is that of /v1/responses. */
const prompts = [...promptFields, 'input'] as const;

/**
 * Whether a decode engine of vLLM 0.32.0 alone serves a request; it computes the prompt itself.
 *
 * Several sequences of one request (prompts, `n`) would all fetch the same KV cache, and the prefill engine frees it after the first
 * fetch. The handover does not cover prompts that are echoed or given as embeddings, conversations that the engine stores, and tools that
 * the engine calls itself. A body that is not a JSON object is for the engine to refuse.
 *
 * @param minTokens a decode engine alone serves shorter prompts; 0: prefill engines compute all prompts
 */
export function isForOne(path: string, body: Buffer, minTokens: number): boolean {
  const request = Json.object(body);
  if (request === null) return true;
  const isTrue = (name: string): boolean => request.get(name)?.isTrue === true;
  const isGiven = (name: string): boolean => request.get(name) !== null;
  if (hasSeveral(request) || isBatch(request.get('prompt'))) return true;
  if (['use_beam_search', 'echo', 'background'].some(isTrue)) return true;
  // The engine refuses this in streams.
  if (isTrue('stream') && isGiven('prompt_logprobs')) return true;
  if (isGiven('prompt_embeds') || isGiven('previous_response_id')) return true;
  const params = request.get('sampling_params');
  if (params !== null && (!params.isObject || hasSeveral(params))) return true;
  // The client calls functions; the engine calls every other kind of tool.
  const tools = path === RESPONSES_PATH ? request.get('tools') : null;
  if (tools?.some((tool) => tool.get('type')?.text() !== 'function') === true) return true;
  return minTokens > 0 && promptTokens(request) < minTokens;
}

const hasSeveral = (object: Json): boolean =>
  ['n', 'best_of'].some((name) => Number(object.get(name)?.scalar() ?? 0) > 1);

/** A list of more than one prompt, each text or ids. */
function isBatch(prompt: Json | null): boolean {
  let count = 0;
  prompt?.some((item) => !(item.isList || item.isText) || ++count > 1);
  return count > 1;
}

/** An estimate; infinite if no prompt is found. */
function promptTokens(request: Json): number {
  for (const name of prompts) {
    const prompt = request.get(name);
    if (prompt !== null && (prompt.isText || prompt.isList)) {
      return tokensIn(prompt.bytes, prompt.start + 1, prompt.end - 1);
    }
  }
  return Infinity;
}
