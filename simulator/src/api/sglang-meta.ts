/** SGLang's `meta_info`: how a generation went, and its logprobs as [logprob, id, text] triples. */

import type { Core } from '../model/core.ts';
import { promptViews } from './prompt-scores.ts';
import type { Sequence } from '../model/sequence.ts';
import { piece } from '../tokens/tokenizer.ts';

export interface MetaInfoOptions {
  logprobs: boolean;
  /** First prompt position with a logprob; -1 for none. */
  startLen: number;
  /** Alternatives per position. */
  top: number;
  /** Include the text of tokens. */
  text: boolean;
}

type Triple = [logprob: number | null, id: number, text: string | null];

/** `from`: the first output token with logprobs. */
export function metaInfo(core: Core, sequence: Sequence, show: MetaInfoOptions, from = 0): Record<string, unknown> {
  const { output, finish } = sequence;
  const isQueueAbort = wasWaiting(sequence);
  const cached = Math.max(0, sequence.cachedTokens);
  const info: Record<string, unknown> = {
    id: sequence.id,
    finish_reason: finishReason(sequence),
    weight_version: core.weightVersion,
    completion_tokens: output.length,
  };
  if (!isQueueAbort) {
    info.prompt_tokens = sequence.prompt.length;
    info.num_retractions = sequence.preemptions;
    info.cached_tokens = cached;
    info.cached_tokens_details = cached > 0 ? { device: cached, host: 0 } : null;
    info.dp_rank = null;
  }
  if (show.logprobs) {
    const { sampler } = core.scheduler;
    info.input_token_logprobs = [];
    if (show.top > 0) info.input_top_logprobs = [];
    const hasPrompt = core.options.disaggregationMode !== 'decode';
    if (show.startLen >= 0 && hasPrompt) Object.assign(info, inputLogprobs(core, sequence, show));
    const views = sequence.views.slice(from);
    info.output_token_logprobs = views.map((_, i): Triple =>
      triple(sequence.logprobAt(from + i, sampler), output[from + i]!, show),
    );
    info.output_token_logprobs_length = output.length;
    if (show.top > 0) {
      info.output_top_logprobs = views.map((view) =>
        sampler.top(view, show.top).map(({ id, logprob }) => triple(logprob, id, show)),
      );
    }
  }
  if (finish) {
    info.weight_versions = sequence.spans;
    info.e2e_latency = (performance.now() - sequence.arrivedMs) / 1000;
  }
  return info;
}

/** Its abort is answered by the part of the engine that has the queue, and knows less of it. */
export const wasWaiting = ({ finish }: Sequence): boolean => finish?.type === 'abort' && finish.wasWaiting === true;

function finishReason(sequence: Sequence): object | null {
  const { finish } = sequence;
  if (!finish) return null;
  if (wasWaiting(sequence)) return { type: 'abort', message: (finish as { message: string }).message };
  if (finish.type === 'length') return { type: 'length', length: sequence.output.length };
  if (finish.type === 'abort') return { type: 'abort', message: finish.message, status_code: null, err_type: null };
  return { type: 'stop', matched: finish.matched };
}

/** The first position has no logprob, because nothing before it was scored. */
function inputLogprobs(core: Core, sequence: Sequence, show: MetaInfoOptions): object {
  const { sampler } = core.scheduler;
  const start = Math.min(show.startLen, sequence.prompt.length - 1);
  const tokens: Triple[] = [];
  const tops: (Triple[] | null)[] = [];
  for (const [id, view] of promptViews(core, sequence, start)) {
    const isFirst = tokens.length === 0;
    tokens.push(triple(isFirst ? null : sampler.logprob(view, id), id, show));
    tops.push(isFirst ? null : sampler.top(view, show.top).map((t) => triple(t.logprob, t.id, show)));
  }
  return { input_token_logprobs: tokens, ...(show.top > 0 ? { input_top_logprobs: tops } : {}) };
}

function triple(logprob: number | null, id: number, show: MetaInfoOptions): Triple {
  return [logprob, id, show.text ? piece(id) : null];
}
