import type { Continued } from './continued.ts';
import type { Place, TreeNode } from './tree-node.ts';

/** The tokens from the root to a place. */
export interface Path {
  readonly ids: Int32Array;
  readonly logprobs: Float64Array;
  readonly mask: Uint8Array;
}

export const tokensAt = ({ node, at }: Pick<Place, 'node' | 'at'>): number => node.depth + at;

/** @param from leaves out so many tokens at the beginning */
export function pathTo(place: Pick<Place, 'node' | 'at'>, from = 0): Path {
  const length = Math.max(0, tokensAt(place) - from);
  const path = { ids: new Int32Array(length), logprobs: new Float64Array(length), mask: new Uint8Array(length) };
  let end = place.at;
  for (let step: TreeNode | null = place.node; step !== null && step.depth + end > from; step = step.parent) {
    const skipped = Math.max(0, from - step.depth);
    const to = step.depth + skipped - from;
    path.ids.set(step.ids.subarray(skipped, end), to);
    const { logprobs } = step;
    if (logprobs !== null) path.logprobs.set(logprobs.subarray(skipped, end), to);
    else if (step.isSampled) path.logprobs.fill(NaN, to, to + end - skipped);
    if (step.isSampled) path.mask.fill(1, to, to + end - skipped);
    end = step.parent?.length ?? 0;
  }
  return path;
}

/**
 * The same from the root on, as one trajectory has it: sampled are the tokens of its own turns alone, with each turn's own logprobs.
 * Other trajectories may have sampled the same tokens, with other weights, or have sampled what is given in this one.
 */
export function lineTo(place: Pick<Place, 'node' | 'at'>, continued: Continued | null): Path {
  const path = pathTo(place);
  path.mask.fill(0);
  let done = path.ids.length;
  let upTo = continued?.keeps ?? 0;
  for (let turn = continued?.end ?? null; turn !== null; turn = turn.parent) {
    path.logprobs.fill(0, upTo, done);
    path.mask.fill(1, turn.from, upTo);
    if (!turn.hasLogprobs) path.logprobs.fill(NaN, turn.from, upTo);
    else if (turn.own !== null) path.logprobs.set(turn.own.subarray(0, Math.max(0, upTo - turn.from)), turn.from);
    done = Math.min(turn.from, upTo);
    upTo = turn.keeps;
  }
  path.logprobs.fill(0, 0, done);
  return path;
}

/** Tokens from `from` on up to a place. */
export function writeIds({ node, at }: Pick<Place, 'node' | 'at'>, from: number, ids: Int32Array): void {
  let end = at;
  for (let step: TreeNode | null = node; step !== null && step.depth + end > from; step = step.parent) {
    const skipped = Math.max(0, from - step.depth);
    ids.set(step.ids.subarray(skipped, end), step.depth + skipped - from);
    end = step.parent?.length ?? 0;
  }
}

/** The text of the tokens from `from` on up to a place. */
export function textFrom({ node, at }: Pick<Place, 'node' | 'at'>, from: number): Buffer {
  const parts: Buffer[] = [];
  let end = at;
  for (let step: TreeNode | null = node; step !== null && step.depth + end > from; step = step.parent) {
    const first = Math.max(0, from - step.depth);
    const pieces: Buffer[] = [];
    if (step.spelling === null) pieces.push(step.text.subarray(step.textBefore(first), step.textBefore(end)));
    else for (let i = first; i < end; i++) pieces.push(step.pieceAt(i));
    parts.unshift(...pieces);
    end = step.parent?.length ?? 0;
  }
  return Buffer.concat(parts);
}

/** The last `count` tokens before a place and their text. */
export function textOfLast(
  { node, at }: Pick<Place, 'node' | 'at'>,
  count: number,
): { ids: number[]; pieces: Buffer[] } {
  const ids: number[] = [];
  const pieces: Buffer[] = [];
  let i = at;
  for (let step: TreeNode | null = node; step !== null && ids.length < count;) {
    if (i === 0) {
      step = step.parent;
      if (step !== null) i = step.length;
      continue;
    }
    i--;
    ids.push(step.ids[i]!);
    pieces.push(step.pieceAt(i));
  }
  return { ids: ids.reverse(), pieces: pieces.reverse() };
}
