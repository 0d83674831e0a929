import { promptFields, tokensIn } from '../../classify/prompt.ts';
import { MemberFinder, readScalarText, scanItems } from '../../kit/json-scan.ts';

/** `input` is that of /v1/responses. */
const prompts = [...promptFields, 'input'] as const;
const others = [
  'n',
  'best_of',
  'use_beam_search',
  'echo',
  'prompt_embeds',
  'previous_response_id',
  'background',
  'tools',
  'sampling_params',
  'stream',
  'prompt_logprobs',
] as const;
const names: readonly string[] = [...prompts, ...others];
const fields = new MemberFinder(names);
const counts = new MemberFinder(['n', 'best_of']);
const typeOf = new MemberFinder(['type']);

const OPEN_ARRAY = 0x5b;
const QUOTE = 0x22;

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
  const spans = new Int32Array(2 * names.length);
  if (fields.find(body, 0, body.length, spans) < 0) return true;
  const at = (name: (typeof names)[number]): readonly [start: number, end: number] => {
    const i = 2 * names.indexOf(name);
    return [spans[i]!, spans[i + 1]!];
  };
  const valueOf = (name: string): string | null => readScalarText(body, ...at(name));
  const isGiven = (name: string): boolean => {
    const [start, end] = at(name);
    return start >= 0 && body.toString('latin1', start, end) !== 'null';
  };
  if (isSeveral(valueOf('n')) || isSeveral(valueOf('best_of')) || isBatch(body, ...at('prompt'))) return true;
  if (['use_beam_search', 'echo', 'background'].some((name) => valueOf(name) === 'true')) return true;
  // The engine refuses this in streams.
  if (valueOf('stream') === 'true' && isGiven('prompt_logprobs')) return true;
  if (isGiven('prompt_embeds') || isGiven('previous_response_id')) return true;
  if (isGiven('sampling_params') && holdsSeveral(body, ...at('sampling_params'))) return true;
  if (path === '/v1/responses' && usesOwnTools(body, ...at('tools'))) return true;
  return minTokens > 0 && promptTokens(body, spans) < minTokens;
}

const isSeveral = (count: string | null): boolean => count !== null && Number(count) > 1;

function holdsSeveral(body: Buffer, start: number, end: number): boolean {
  const spans = new Int32Array(4);
  if (counts.find(body, start, end, spans) < 0) return true;
  return isSeveral(readScalarText(body, spans[0]!, spans[1]!)) || isSeveral(readScalarText(body, spans[2]!, spans[3]!));
}

/** A list of more than one prompt, each text or ids. */
function isBatch(body: Buffer, start: number, end: number): boolean {
  let count = 0;
  if (start >= 0) {
    scanItems(body, start, end, (at) => (body[at] === OPEN_ARRAY || body[at] === QUOTE) && ++count < 2);
  }
  return count > 1;
}

/** The client calls functions; the engine calls every other kind of tool. */
function usesOwnTools(body: Buffer, start: number, end: number): boolean {
  let hasOwn = false;
  if (start >= 0) {
    scanItems(body, start, end, (from, to) => {
      const spans = new Int32Array(2);
      typeOf.find(body, from, to, spans);
      hasOwn = readScalarText(body, spans[0]!, spans[1]!) !== 'function';
      return !hasOwn;
    });
  }
  return hasOwn;
}

/** An estimate; infinite if no prompt is found. */
function promptTokens(body: Buffer, spans: Int32Array): number {
  for (let i = 0; i < prompts.length; i++) {
    const [start, end] = [spans[2 * i]!, spans[2 * i + 1]!];
    if (start >= 0 && (body[start] === QUOTE || body[start] === OPEN_ARRAY)) return tokensIn(body, start + 1, end - 1);
  }
  return Infinity;
}
