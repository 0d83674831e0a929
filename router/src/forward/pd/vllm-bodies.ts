import { type Members, withMembers, withoutMembers } from '../../kit/json-edit.ts';
import { MemberFinder } from '../../kit/json-scan.ts';

/**
 * What a path calls the bound on its answer. With `min_tokens` the one token of a prefill engine is never an end: of those older
 * vLLM hands nothing over.
 */
const answerBounds: Readonly<Record<string, readonly string[]>> = {
  '/v1/completions': ['max_tokens', 'min_tokens'],
  '/v1/chat/completions': ['max_tokens', 'min_tokens'],
  '/v1/messages': ['max_tokens', 'min_tokens'],
  '/v1/responses': ['max_output_tokens'],
  '/inference/v1/generate': ['max_tokens', 'min_tokens'],
};

const NESTED = 'sampling_params';
/** What a decode engine can't tell, since it never reads the prompt; asked for it, vLLM's breaks (vllm-project/vllm#50792). */
const promptQuestions = ['prompt_logprobs', 'prompt_logprob_token_ids'] as const;

const EMPTY = Buffer.from('{}');
const LATER_NAME = 'max_completion_tokens';

const places = new MemberFinder([NESTED, LATER_NAME]);
const questions = new MemberFinder(promptQuestions);

/** A body whose limits are in an object of their own, and that object. */
const nestedOf = (path: string, body: Buffer): Buffer | null => {
  if (path !== '/inference/v1/generate') return null;
  const spans = new Int32Array(4);
  if (places.find(body, 0, body.length, spans) < 0 || spans[0]! < 0) return EMPTY;
  return body.subarray(spans[0], spans[1]);
};

function withNested(body: Buffer, nested: Buffer, members: Members, more: Members): Buffer | null {
  const changed = withMembers(nested, members);
  return changed === null ? null : withMembers(body, { [NESTED]: changed, ...more });
}

/**
 * The client's request, as far as a prefill engine has to do with it: read the prompt, make one token, keep the KV.
 * @returns null: it is no JSON object
 */
export function prefillBody(path: string, body: Buffer, params: string): Buffer | null {
  const ones = Object.fromEntries(answerBounds[path]!.map((name) => [name, '1']));
  const more = { stream: 'false', kv_transfer_params: params };
  // vLLM refuses them where nothing is streamed.
  const whole = withoutMembers(body, ['stream_options']);
  const nested = nestedOf(path, whole);
  if (nested !== null) return withNested(whole, nested, ones, more);
  const spans = new Int32Array(4);
  const hasLaterName = places.find(whole, 0, whole.length, spans) >= 0 && spans[2]! >= 0;
  return withMembers(whole, { ...ones, ...(hasLaterName ? { [LATER_NAME]: '1' } : {}), ...more });
}

/** The client's request with what leads its decode engine to the KV. null: it is no JSON object. */
export function decodeBody(path: string, body: Buffer, params: Buffer | string): Buffer | null {
  const more = { kv_transfer_params: params };
  const nested = nestedOf(path, body);
  if (nested !== null) {
    const unasked = unaskedOf(nested);
    return Object.keys(unasked).length === 0 ? withMembers(body, more) : withNested(body, nested, unasked, more);
  }
  return withMembers(body, { ...unaskedOf(body), ...more });
}

/** The questions about the prompt that are in it, taken back. */
function unaskedOf(object: Buffer): Members {
  const spans = new Int32Array(2 * promptQuestions.length);
  questions.find(object, 0, object.length, spans);
  const asked = promptQuestions.filter((_, i) => spans[2 * i]! >= 0);
  return Object.fromEntries(asked.map((name) => [name, 'null']));
}
