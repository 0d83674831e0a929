/** The logprobs of /v1/completions and /v1/chat/completions. */

import type { OpenAiRequest } from './openai-dialect.ts';
import type { Sequence } from '../model/sequence.ts';
import { decode, piece, pieceBytes } from '../tokens/tokenizer.ts';

interface Scored {
  id: number;
  token: string;
  logprob: number;
  top: { token: string; logprob: number }[];
}

function score(request: OpenAiRequest, sequence: Sequence, from: number, to: number): Scored[] {
  const { sampler } = request.core.scheduler;
  const name = (id: number): string => (request.tokensAsIds ? `token_id:${id}` : piece(id));
  const scored: Scored[] = [];
  for (let i = from; i < to; i += 1) {
    const id = sequence.output[i]!;
    const view = sequence.views[i]!;
    const top = sampler.top(view, request.topLogprobs ?? 0);
    scored.push({
      id,
      token: name(id),
      logprob: sequence.logprobAt(i, sampler),
      top: top.map((alternative) => ({
        token: name(alternative.id),
        logprob: alternative.logprob,
      })),
    });
  }
  return scored;
}

/** `hasOffsets` false: SGLang writes -1 for every text_offset. */
export function completionLogprobs(
  request: OpenAiRequest,
  sequence: Sequence,
  from: number,
  to: number,
  hasOffsets: boolean,
): object | null {
  if (request.topLogprobs === null) return null;
  const scored = score(request, sequence, from, to);
  let offset = decode(sequence.output.slice(0, from)).length;
  return {
    text_offset: scored.map(({ id }) => {
      const start = offset;
      offset += piece(id).length;
      return hasOffsets ? start : -1;
    }),
    token_logprobs: scored.map(({ logprob }) => logprob),
    tokens: scored.map(({ token }) => token),
    top_logprobs: scored.map(({ token, logprob, top }) => ({
      [token]: logprob,
      ...Object.fromEntries(top.map((alternative) => [alternative.token, alternative.logprob])),
    })),
  };
}

/** For half a character SGLang (0.5.23) sends its bytes, vLLM those of the replacement character. */
export function chatLogprobs(request: OpenAiRequest, sequence: Sequence, from: number, to: number): object | null {
  if (request.topLogprobs === null) return null;
  const isSglang = request.core.options.kind === 'sglang';
  return {
    content: score(request, sequence, from, to).map(({ id, token, logprob, top }) => ({
      token,
      logprob,
      bytes: isSglang ? pieceBytes(id) : [...Buffer.from(token)],
      top_logprobs: top.map((alternative) => ({
        ...alternative,
        bytes: [...Buffer.from(alternative.token)],
      })),
    })),
  };
}
