import type { KnownSession } from './known-session.ts';
import { type Mark, type TurnEnd, isNewer } from './mark.ts';
import { type Spot, isSampledSince, tokensAt } from './path.ts';
import type { TreeNode } from './tree-node.ts';

/** The turn that a trajectory with the tokens up to a place continues, and how many tokens up to that turn's end it keeps. */
export interface Continued {
  readonly end: TurnEnd;
  readonly keeps: number;
  /** Several matching turns differ in logprobs or versions: it is not known which one is continued. */
  readonly isAmbiguous: boolean;
}

/** How many nodes below a place are searched for the end of its turn. */
const MAX_BELOW = 256;
/** How many turns of a session are compared with a place, the newest first. */
const MAX_COMPARED = 64;

/** @param session of the request, whose own turns come first; null: it named none, or one without turns */
export function continuedAt(place: Spot, session: KnownSession | null, isNamed = session !== null): Continued | null {
  return (session === null ? null : ownAt(place, session)) ?? newestAt(place, isNamed);
}

/** The session's turn that a place continues; else the one of which it keeps a part. */
function ownAt(place: Spot, session: KnownSession): Continued | null {
  const above = endAbove(place, (mark) => session.at(mark));
  const keeps = above?.keeps ?? 0;
  const part = partOf(place, session, above === null ? 0 : partsFrom(above.end, keeps));
  if (part !== null && part.keeps > keeps) {
    // If a complete turn follows another one directly, its first tokens may also be text of the client.
    const isMaybeWritten = above !== null && part.end.from === keeps && !part.end.isCut;
    return isMaybeWritten ? { ...part, isAmbiguous: true } : part;
  }
  if (above === null) return null;
  const { end, marks } = above;
  // One turn may end there, and another one without the token that stopped it.
  const isOther = marks.some((mark) => mark.isMixedIn(session.name) || session.at(mark)!.digest !== end.digest);
  return { end, keeps, isAmbiguous: isOther || isPartOfOther(place, session, end, keeps) };
}

/** The beginnings of turns of which a part may follow an end. A client that repeats a truncated request may get more than before. */
export const partsFrom = ({ isCut, from }: TurnEnd, keeps: number): number => (isCut ? from : keeps);

/** Whether the kept part of a turn is also the beginning of another turn of the session, which the client may have meant. */
function isPartOfOther(place: Spot, session: KnownSession, end: TurnEnd, keeps: number): boolean {
  const longer = [...session.ends.values()].filter(({ end: { from, tokens, digest } }) => {
    return from < keeps && tokens > keeps && digest !== end.digest;
  });
  return longer.slice(-MAX_COMPARED).some(({ mark }) => sharedTokens(place, mark, keeps - 1) >= keeps);
}

/** The session's turn that a place is in the middle of, or leaves. @param after the turn begins after at least this many tokens */
export function partOf(place: Spot, session: KnownSession, after: number): Continued | null {
  const tokens = tokensAt(place);
  const fitting = [...session.ends.values()].filter(
    ({ end }) => end.from >= after && end.from < tokens && end.tokens > after,
  );
  let best: Continued | null = null;
  for (const { end, mark } of fitting.slice(-MAX_COMPARED).toReversed()) {
    const shared = Math.min(end.tokens, sharedTokens(place, mark, end.from));
    if (shared <= end.from || shared < (best?.keeps ?? 0)) continue;
    // Of a session's turns with the same tokens a mark keeps only the newest; `isMixedIn` says that an older one had other logprobs.
    const isMixed = mark.isMixedIn(session.name);
    if (best === null || shared > best.keeps) best = { end, keeps: shared, isAmbiguous: isMixed };
    else if (isMixed || best.end.digest !== end.digest) best = { end: best.end, keeps: shared, isAmbiguous: true };
  }
  return best;
}

/**
 * Whether a text that continues after a place may have other tokens there than a truncated turn of the session: it leaves that turn within a
 * token, or after U+FFFD, which replaces the bytes of incomplete letters.
 */
export function mayDiffer(place: Spot, session: KnownSession, text: Buffer, textBytes: number): boolean {
  const tokens = tokensAt(place);
  const above = endAbove(place, (mark) => session.at(mark));
  const isCutEnd = above !== null && above.end.isCut && above.keeps === tokens;
  if (isCutEnd && text.subarray(0, textBytes).toString('utf8', textBytes - 3) === '\ufffd') return true;
  if (textBytes === text.length) return false;
  return [...session.ends.values()]
    .filter(({ end }) => end.isCut && end.from <= tokens && end.tokens > tokens)
    .slice(-MAX_COMPARED)
    .some(({ end, mark }) => {
      const isOn = sharedTokens(place, mark, tokens - 1) >= tokens;
      return isOn && firstByte(mark, tokens, end.tokens) === text[textBytes];
    });
}

/** The first byte of the text of tokens before a mark; undefined: they have none. */
function firstByte({ node }: Mark, from: number, to: number): number | undefined {
  for (let at = from; at < to; at++) {
    let step = node;
    while (step.depth > at) step = step.parent!;
    const piece = step.pieceAt(at - step.depth);
    if (piece.length > 0) return piece[0];
  }
  return undefined;
}

/** How many tokens the ways to a place and to a mark have in common; 0: not more than `least`. */
function sharedTokens(place: Spot, mark: Mark, least: number): number {
  let step: TreeNode = mark.node;
  let end = mark.at;
  while (step.depth + end > least) {
    const covered = coveredOf(place, step);
    if (covered > 0) return step.depth + Math.min(end, covered);
    if (step.parent === null) return 0;
    step = step.parent;
    end = step.length;
  }
  return 0;
}

/** How many tokens of a node are on the way to a place. */
function coveredOf({ node, at }: Spot, asked: TreeNode): number {
  if (asked === node) return at;
  let step: TreeNode | null = node;
  while (step !== null && step.depth > asked.depth) step = step.parent;
  return step === asked ? asked.length : 0;
}

/** The last turn of any session that ends at or above a place, or contains it. */
function newestAt(place: Spot, isNamed: boolean): Continued | null {
  const above = endAbove(place, ({ unnamed }) => unnamed);
  // The client kept only a part of the sampled tokens, which is still that turn's. A request with a session has not sampled it.
  const isInside = !isNamed && isSampledSince(place, above?.keeps ?? 0);
  const below = isInside ? endBelow(place) : null;
  // It may also be a complete turn that ended in between, and text of the client.
  if (below !== null && above !== null && above.keeps > below.end.from) return { ...below, isAmbiguous: true };
  if (below !== null || above === null) return below;
  const { end, keeps, marks } = above;
  const isAmbiguous = marks.some((mark) => mark.isMixed || mark.newest!.digest !== end.digest);
  return { end, keeps, isAmbiguous };
}

interface Above {
  readonly end: TurnEnd;
  readonly keeps: number;
  /** All ends there. */
  readonly marks: readonly Mark[];
}

/** The last end at or above a place; of several there the newest. */
function endAbove({ node, at }: Spot, endOf: (mark: Mark) => TurnEnd | null): Above | null {
  let end = at;
  for (let step: TreeNode | null = node; step !== null; step = step.parent) {
    let best: { end: TurnEnd; at: number; marks: Mark[] } | null = null;
    for (const mark of step.marks ?? []) {
      if (mark.kind === 'prompt' || mark.at > end || mark.at < (best?.at ?? 0)) continue;
      const found = endOf(mark);
      if (found === null) continue;
      if (best === null || mark.at > best.at) best = { end: found, at: mark.at, marks: [mark] };
      else {
        best.marks.push(mark);
        if (isNewer(found, best.end)) best.end = found;
      }
    }
    if (best !== null) return { end: best.end, keeps: step.depth + best.at, marks: best.marks };
    end = step.parent?.length ?? 0;
  }
  return null;
}

/** The newest turn that a place lies in the middle of. */
function endBelow(place: Spot): Continued | null {
  const keeps = tokensAt(place);
  let best: Continued | null = null;
  const nodes = [{ node: place.node, after: place.at }];
  for (let visits = 0; nodes.length > 0 && visits < MAX_BELOW; visits++) {
    const { node, after } = nodes.pop()!;
    const ends = firstEnds(node, after, keeps);
    for (const { end, isMixed } of ends) {
      const isOther: boolean = isMixed || (best !== null && (best.isAmbiguous || best.end.digest !== end.digest));
      best = { end: best === null || isNewer(end, best.end) ? end : best.end, keeps, isAmbiguous: isOther };
    }
    if (ends.length > 0) continue;
    for (const child of node.children) if (child.isSampled) nodes.push({ node: child, after: 0 });
  }
  return best;
}

/** The first ends behind token `after` of a node, of turns that began before `keeps`. */
function firstEnds({ marks }: TreeNode, after: number, keeps: number): { end: TurnEnd; isMixed: boolean }[] {
  let at = Infinity;
  let ends: { end: TurnEnd; isMixed: boolean }[] = [];
  for (const mark of marks ?? []) {
    const end = mark.kind === 'prompt' ? null : mark.unnamed;
    if (end === null || end.from >= keeps || mark.at <= after || mark.at > at) continue;
    if (mark.at < at) ends = [];
    at = mark.at;
    ends.push({ end, isMixed: mark.isMixed });
  }
  return ends;
}
