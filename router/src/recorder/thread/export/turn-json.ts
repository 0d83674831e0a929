import { isUtf8 } from 'node:buffer';
import type { TokenPieces } from '../tokens/pieces.ts';
import type { TurnOutline } from '../store/store.ts';
import type { Turn } from '../../shared/turn.ts';
import { type CallText, callText } from './call-text.ts';
import { outcomeJson } from '../../shared/outcome.ts';
import { topTokensJson } from './top-tokens.ts';
import { type Trajectory, isExact } from './trajectory.ts';

/** What a trajectory has beside its tokens and turns. */
export const headJson = (trajectory: Trajectory) => ({
  id: trajectory.id,
  session: trajectory.session,
  group: trajectory.group,
  tenant: trajectory.tenant,
  model: trajectory.model,
  exact: isExact(trajectory),
  ...outcomeJson(trajectory.outcome),
  versions: trajectory.versions,
  ambiguous: trajectory.isAmbiguous,
  ...topTokensJson(trajectory),
});

/** A turn in JSON, with the names that training code uses. */
export function outlineJson(
  turn: TurnOutline | Omit<Turn, 'ids' | 'logprobs' | 'mask' | 'request' | 'answer' | 'topTokens'>,
) {
  return {
    id: turn.id,
    parent: turn.parent,
    keeps: turn.keeps,
    index: turn.index,
    worker: turn.worker,
    model: turn.model,
    path: turn.path,
    exact: turn.isExact !== false,
    started_at_ms: turn.startedAtMs,
    ttft_ms: turn.ttftMs,
    generation_ms: turn.generationMs,
    prompt_tokens: turn.promptTokens,
    output_tokens: turn.outputTokens,
    cached_tokens: turn.cachedTokens,
    finish_reason: turn.finishReason,
    versions: turn.versions,
    unknown_logprobs: turn.unknownLogprobs,
    drift: turn.drift,
    seams: turn.seams ?? [],
    ambiguous: turn.isAmbiguous === true,
    routed_experts: turn.experts,
    indexer_topk: turn.indexer ?? null,
    ...(turn.unreadable === undefined ? {} : { unreadable: turn.unreadable }),
  };
}

/**
 * Tokens that a turn adds; with what was said, as it was said.
 * @param pieces the bytes of the tokenizer's tokens; null: the turn has no `token_texts`
 */
export function turnJson(turn: Turn, pieces: TokenPieces | null) {
  return {
    ...outlineJson(turn),
    tokens: Array.from(turn.ids),
    ...(pieces === null ? {} : { token_texts: Array.from(turn.ids, (id) => textOf(pieces.bytesOf(id))) }),
    loss_mask: Array.from(turn.mask),
    // JSON has null for NaN: not known.
    rollout_log_probs: Array.from(turn.logprobs),
    ...topTokensJson({ turns: [{ ...turn, keeps: 0 }], ids: turn.ids }),
    ...said('request', turn.request),
    ...said('answer', turn.answer),
    ...textJson(turn),
  };
}

/** A token may be a part of a character: then it has bytes and no text. */
const textOf = (bytes: Buffer | null): string | readonly number[] | null =>
  bytes === null ? null : isUtf8(bytes) ? bytes.toString() : [...bytes];

/** A turn whose tokens are not known is exported as text. */
export function textJson(turn: Turn): { text?: CallText } {
  const text = callText(turn);
  return text === null ? {} : { text };
}

/** As text where it is text: that way numbers keep their digits, and people can read it. */
export function said(name: 'request' | 'answer', bytes: Uint8Array | null): Record<string, string> {
  if (bytes === null) return {};
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return isUtf8(buffer) ? { [name]: buffer.toString() } : { [`${name}_base64`]: buffer.toString('base64') };
}
