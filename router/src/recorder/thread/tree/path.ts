import type { Continued } from './continued.ts';
import type { Place, TreeNode } from './tree-node.ts';

/** A place that is not held. */
export type Spot = Pick<Place, 'node' | 'at'>;

/** The tokens from the root to a place. */
export interface Path {
  readonly ids: Int32Array;
  readonly logprobs: Float64Array;
  readonly mask: Uint8Array;
}

export const tokensAt = ({ node, at }: Spot): number => node.depth + at;

/** The nodes on the way to a place, the last one first, with the tokens of each that are on it. @param from leaves out so many tokens at the beginning */
function* partsTo({ node, at }: Spot, from = 0): Iterable<{ node: TreeNode; first: number; end: number }> {
  let end = at;
  for (let step: TreeNode | null = node; step !== null && step.depth + end > from; step = step.parent) {
    yield { node: step, first: Math.max(0, from - step.depth), end };
    end = step.parent?.length ?? 0;
  }
}

/** Tokens from `from` on up to a place. */
export function idsTo(place: Spot, from = 0): Int32Array {
  const ids = new Int32Array(Math.max(0, tokensAt(place) - from));
  for (const { node, first, end } of partsTo(place, from))
    ids.set(node.ids.subarray(first, end), node.depth + first - from);
  return ids;
}

export function pathTo(place: Spot): Path {
  const ids = idsTo(place);
  const logprobs = new Float64Array(ids.length);
  const mask = new Uint8Array(ids.length);
  for (const { node, end } of partsTo(place)) {
    if (node.logprobs !== null) logprobs.set(node.logprobs.subarray(0, end), node.depth);
    else if (node.isSampled) logprobs.fill(NaN, node.depth, node.depth + end);
    if (node.isSampled) mask.fill(1, node.depth, node.depth + end);
  }
  return { ids, logprobs, mask };
}

/**
 * The same from the root on, as one trajectory has it: sampled are the tokens of its own turns alone, with each turn's own logprobs.
 * Other trajectories may have sampled the same tokens, with other weights, or have sampled what is given in this one.
 */
export function lineTo(place: Spot, continued: Continued | null): Path {
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

/** Whether one of the tokens from `from` on up to a place was sampled. */
export function isSampledSince(place: Spot, from: number): boolean {
  for (const { node } of partsTo(place, from)) if (node.isSampled) return true;
  return false;
}

/** The text of the tokens from `from` on up to a place. */
export function textFrom(place: Spot, from: number): Buffer {
  const parts: Buffer[] = [];
  for (const { node, first, end } of partsTo(place, from)) {
    const pieces: Buffer[] = [];
    if (node.spelling === null) pieces.push(node.text.subarray(node.textBefore(first), node.textBefore(end)));
    else for (let i = first; i < end; i++) pieces.push(node.pieceAt(i));
    parts.unshift(Buffer.concat(pieces));
  }
  return Buffer.concat(parts);
}

/** The last `count` tokens before a place and their text. */
export function textOfLast(place: Spot, count: number): { ids: number[]; pieces: Buffer[] } {
  const ids: number[] = [];
  const pieces: Buffer[] = [];
  for (const { node, first, end } of partsTo(place, tokensAt(place) - count)) {
    for (let i = end - 1; i >= first; i--) {
      ids.push(node.ids[i]!);
      pieces.push(node.pieceAt(i));
    }
  }
  return { ids: ids.reverse(), pieces: pieces.reverse() };
}
