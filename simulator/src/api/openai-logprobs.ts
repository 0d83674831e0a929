/** The logprobs of /v1/completions and /v1/chat/completions. */

import type { OpenAiRequest } from './openai-dialect.ts';
import type { Sequence } from '../model/sequence.ts';
import { promptViews } from './prompt-scores.ts';
import { decode, piece, pieceBytes } from '../tokens/tokenizer.ts';

interface Scored {
  id: number;
  token: string;
  /** null: of the first token of a prompt. */
  logprob: number | null;
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

/** The tokens of an echoed prompt. */
function scorePrompt(request: OpenAiRequest, sequence: Sequence): Scored[] {
  const { sampler } = request.core.scheduler;
  return Array.from(promptViews(request.core, sequence, 0), ([id, view], i) => ({
    id,
    token: piece(id),
    logprob: i === 0 ? null : sampler.logprob(view, id),
    top: sampler.top(view, request.topLogprobs!).map((each) => ({ token: piece(each.id), logprob: each.logprob })),
  }));
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
  // SGLang returns logprobs of the prompt only with `logprobs` above 0.
  const isEchoed = request.echo && from === 0 && (hasOffsets || request.topLogprobs > 0);
  const scored: Scored[] = [...(isEchoed ? scorePrompt(request, sequence) : []), ...score(request, sequence, from, to)];
  // vLLM (0.33) leaves the prompt out of the text of a request for ids, but its first offsets count it.
  const hasText = from > 0 && request.echo && !request.returnTokenIds;
  let offset = decode([...(hasText ? sequence.prompt : []), ...sequence.output.slice(0, from)], false).length;
  return {
    text_offset: scored.map(({ id }) => {
      const start = offset;
      offset += piece(id).length;
      return hasOffsets ? start : -1;
    }),
    token_logprobs: scored.map(({ logprob }) => logprob),
    tokens: scored.map(({ token }) => token),
    top_logprobs: scored.map(({ token, logprob, top }) =>
      logprob === null
        ? null
        : {
            [token]: logprob,
            ...Object.fromEntries(top.map((alternative) => [alternative.token, alternative.logprob])),
          },
    ),
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
