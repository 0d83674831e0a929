/** Logprobs of a prompt's tokens, for SGLang's input logprobs and vLLM's `prompt_logprobs`. */

import type { Core } from '../model/core.ts';
import { type Fields, Problem } from './read-request.ts';
import { contextOf, readToken } from '../model/sampler.ts';
import type { Sequence } from '../model/sequence.ts';
import { piece } from '../tokens/tokenizer.ts';

/** Each token of the prompt from `start` on, with the sampler's view before it. */
export function* promptViews(core: Core, { prompt, sampler }: Sequence, start: number): Generator<[number, number]> {
  const weights = sampler ?? core.scheduler.sampler;
  let context = contextOf(prompt.slice(0, start));
  for (const id of prompt.slice(start)) {
    yield [id, weights.view(context)];
    context = readToken(context, id);
  }
}

/** vLLM's `prompt_logprobs`; null if not requested. */
export function readPromptLogprobs(core: Core, params: Fields, isStream: boolean): number | null | Problem {
  const { prompt_logprobs: count } = params;
  if (typeof count !== 'number') return null;
  const { maxLogprobs } = core.options;
  if (isStream) return new Problem('`prompt_logprobs` are not available when `stream=True`.', 'prompt_logprobs');
  if (count <= maxLogprobs) return Math.max(0, count);
  const message = `Requested prompt logprobs of ${count}, which is greater than max allowed: ${maxLogprobs}`;
  return new Problem(message, 'prompt_logprobs');
}

/** In vLLM's form: each token's own and the `top` most likely ones of its position; null for the first. */
export function vllmPromptLogprobs(core: Core, sequence: Sequence, top: number | null): object[] | null {
  if (top === null) return null;
  const { sampler } = core.scheduler;
  const rows = Array.from(promptViews(core, sequence, 0), ([id, view]) => {
    const ids = new Set([id, ...sampler.top(view, top).map((each) => each.id)]);
    const entry = (each: number): [number, object] => [
      each,
      { logprob: sampler.logprob(view, each), rank: sampler.rank(view, each), decoded_token: piece(each) },
    ];
    return Object.fromEntries(Array.from(ids, entry));
  });
  return [null as never, ...rows.slice(1)];
}
