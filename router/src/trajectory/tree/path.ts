import type { Place, TreeNode, TurnEnd } from './tree-node.ts';

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
  writePath(place, from, path);
  return path;
}

/** @param into all 0 */
export function writePath({ node, at }: Pick<Place, 'node' | 'at'>, from: number, into: Path): void {
  let end = at;
  for (let step: TreeNode | null = node; step !== null && step.depth + end > from; step = step.parent) {
    const skipped = Math.max(0, from - step.depth);
    const to = step.depth + skipped - from;
    into.ids.set(step.ids.subarray(skipped, end), to);
    const { logprobs } = step;
    if (logprobs !== null) into.logprobs.set(logprobs.subarray(skipped, end), to);
    else if (step.isSampled) into.logprobs.fill(NaN, to, to + end - skipped);
    if (step.isSampled) into.mask.fill(1, to, to + end - skipped);
    end = step.parent?.length ?? 0;
  }
}

/** The same from the root on, with each turn's own logprobs: several may have sampled the same tokens, with other weights or temperatures. */
export function ownPathTo(place: Pick<Place, 'node' | 'at'>): Path {
  const path = pathTo(place);
  let upTo = tokensAt(place);
  for (let step: TreeNode | null = place.node; step !== null; step = step.parent) {
    // Turns that ended inside of a later one are others'.
    for (let last = endUpTo(step, upTo); last !== null; last = endUpTo(step, upTo)) {
      if (last.own !== null) path.logprobs.set(last.own, last.from);
      upTo = last.from;
    }
  }
  return path;
}

const endUpTo = (node: TreeNode, upTo: number): TurnEnd | null =>
  newestEnd(node, 0, upTo - node.depth, true)?.end ?? null;

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
    ids.push(step.idAt(i));
    pieces.push(step.pieceAt(i));
  }
  return { ids: ids.reverse(), pieces: pieces.reverse() };
}

/** Which turn a trajectory goes on with that begins with the tokens up to a place, and how many of that turn's tokens it keeps. */
export interface Continued extends TurnEnd {
  readonly keeps: number;
}

/** How far below a place the end of the turn that it lies in is looked for. */
const MAX_BELOW = 64;

export function continuedAt(place: Pick<Place, 'node' | 'at'>): Continued | null {
  const keeps = tokensAt(place);
  const { above, isInsideOfTurn } = endAbove(place);
  if (isInsideOfTurn) {
    // The client kept only a part of what was sampled: it is still that turn's.
    const below = endBelow(place);
    if (below !== null) return { ...below, keeps };
  }
  return above;
}

/** The last end at or above a place; whether sampled tokens lie in between. */
function endAbove({ node, at }: Pick<Place, 'node' | 'at'>): { above: Continued | null; isInsideOfTurn: boolean } {
  let isInsideOfTurn = false;
  let end = at;
  for (let step: TreeNode | null = node; step !== null; step = step.parent) {
    const last = newestEnd(step, 0, end, true);
    if (last !== null) {
      const above = { ...last.end, keeps: step.depth + last.at };
      return { above, isInsideOfTurn: isInsideOfTurn || (step.isSampled && last.at < end) };
    }
    isInsideOfTurn ||= step.isSampled && end > 0;
    end = step.parent?.length ?? 0;
  }
  return { above: null, isInsideOfTurn };
}

function endBelow({ node, at }: Pick<Place, 'node' | 'at'>): TurnEnd | null {
  let after = at;
  let step: TreeNode | null = node;
  for (let i = 0; step !== null && i < MAX_BELOW; i++) {
    const next = newestEnd(step, after, step.length, false);
    if (next !== null) return next.end;
    after = 0;
    let child: TreeNode | null = null;
    // Used together with everything above them, the newest child is where the newest turn went.
    for (const other of step.children) if (other.isSampled && (child === null || isNewer(other, child))) child = other;
    step = child;
  }
  return null;
}

const isNewer = (a: TreeNode, b: TreeNode): boolean => stampOf(a) > stampOf(b);

function stampOf(node: TreeNode): number {
  let stamp = -1;
  for (const mark of node.marks ?? []) stamp = Math.max(stamp, mark.stamp);
  return stamp;
}

/** Of the ends in `(after, upTo]` the last (or first) one, of several there the newest. */
function newestEnd(node: TreeNode, after: number, upTo: number, isLast: boolean): { end: TurnEnd; at: number } | null {
  let best: { end: TurnEnd; at: number; stamp: number } | null = null;
  for (const { at, end, stamp } of node.marks ?? []) {
    if (end === null || at <= after || at > upTo) continue;
    const isBetter = best === null || (isLast ? at > best.at : at < best.at) || (at === best.at && stamp > best.stamp);
    if (isBetter) best = { end, at, stamp };
  }
  return best;
}
