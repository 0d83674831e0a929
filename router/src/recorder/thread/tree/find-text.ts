import { partOf, partsFrom } from './continued.ts';
import type { KnownSession } from './known-session.ts';
import { type Mark, type TurnEnd, isNewer } from './mark.ts';
import { tokensAt } from './path.ts';
import type { TreeNode } from './tree-node.ts';

/** Children that are looked into for one text: equal texts with different ids are rare, and an attacker's must not cost more. */
const MAX_VISITS = 4096;
/** Places inside of runs that are tried. */
const MAX_INSIDE = 4;

export interface Found {
  readonly node: TreeNode;
  readonly at: number;
  /** Bytes of the text that are covered. */
  readonly textBytes: number;
}

interface FoundEnd extends Found {
  readonly mark: Mark;
  readonly end: TurnEnd;
}

export interface TextMatch {
  /** The longest beginning of the text that ends where other tokens may follow; at the root: none. */
  readonly marked: Found & { readonly mark: Mark | null };
  /** Several turns that differ in ids, logprobs or versions have this end: it is not known which one is meant. */
  readonly isAmbiguous: boolean;
  /** Beginnings that are longer and end between any two tokens, the longest first. */
  readonly inside: readonly (Found & { readonly isAmbiguous: boolean })[];
  /** Those are in turns of the request's session. */
  readonly isOwn: boolean;
  /**
   * The end of the newest turn whose visible text ends with `text`, after the token that stopped it. null where there is none, or where
   * something newer ends with the text itself.
   */
  readonly stopped: (Found & Pick<TextMatch, 'isAmbiguous'>) | null;
}

/** Whether the byte at a position continues a letter of UTF-8. */
export const isInLetter = (text: Buffer, at: number): boolean => (text[at] ?? 0) >> 6 === 2;

/** A way down the tree, with the last end of a turn on it: of the request's session, and of any. */
interface Way {
  readonly node: TreeNode;
  readonly textAt: number;
  readonly own: FoundEnd | null;
  readonly any: FoundEnd | null;
}

/** A place on a way. */
interface OnWay extends Found, Pick<Way, 'own' | 'any'> {}

interface FoundPrompt extends OnWay {
  readonly mark: Mark;
}

/** What was found on all ways. */
class Search {
  readonly text: Buffer;
  readonly session: KnownSession | null;
  readonly own = new BestEnd();
  readonly any = new BestEnd();
  readonly prompts: FoundPrompt[] = [];
  readonly inside: OnWay[] = [];
  /** Ends whose visible text ends with `text`. */
  readonly stops: FoundEnd[] = [];
  readonly #ways: Way[] = [];

  constructor(root: TreeNode, text: Buffer, session: KnownSession | null) {
    this.text = text;
    this.session = session;
    this.#push({ node: root, textAt: 0, own: null, any: null });
    for (let visits = 0; this.#ways.length > 0 && visits < MAX_VISITS; visits++) this.#follow(this.#ways.pop()!);
    this.inside.sort((a, b) => b.textBytes - a.textBytes || newest(b.node) - newest(a.node));
  }

  #push({ node, ...way }: Way): void {
    for (const child of node.startingWith(this.text[way.textAt] ?? -1)) this.#ways.push({ ...way, node: child });
  }

  #follow({ node, textAt, own, any }: Way): void {
    const { text, session } = this;
    const { tokens, bytes } = node.match(text, textAt);
    const placeAt = (at: number): Found => ({ node, at, textBytes: textAt + node.textBefore(at) });
    for (const mark of node.marks ?? []) {
      if (mark.kind === 'prompt' || mark.at > tokens) continue;
      const place = placeAt(mark.at);
      // What follows there can't be encoded on its own.
      if (isInLetter(text, place.textBytes)) continue;
      any = this.any.add({ ...place, mark, end: mark.unnamed! }, any);
      const end = session?.at(mark) ?? null;
      if (end !== null) own = this.own.add({ ...place, mark, end }, own);
    }
    for (const mark of node.marks ?? []) {
      if (mark.kind !== 'prompt' || mark.at > tokens) continue;
      const place = placeAt(mark.at);
      if (place.textBytes === text.length) this.prompts.push({ ...place, mark, own, any });
    }
    if (textAt + bytes === text.length) addStops(this.stops, node, textAt, text.length);
    if (tokens === node.length) this.#push({ node, textAt: textAt + bytes, own, any });
    if (tokens > 0) this.inside.push({ ...placeAt(tokens), own, any });
  }
}

/** The longest of the ends on all ways; of equally long ones the newest. */
class BestEnd {
  best: FoundEnd | null = null;
  /** By the length of what a client sees of its text: what turns that end there have in common; null: they differ. */
  readonly #digests = new Map<number, number | null>();

  /** @param last on its way so far @returns the last one on its way with it */
  add(found: FoundEnd, last: FoundEnd | null): FoundEnd {
    const { digest } = found.end;
    const seen = seenBytes(found);
    const isOther = (this.#digests.get(seen) ?? digest) !== digest || this.#digests.get(seen) === null;
    this.#digests.set(seen, isOther ? null : digest);
    if (isBetter(found, this.best)) this.best = found;
    return isBetter(found, last) ? found : last!;
  }

  /** A client that goes on from the best may as well go on from another one that it saw the same text of. */
  get isTied(): boolean {
    return this.best !== null && this.#digests.get(seenBytes(this.best)) === null;
  }
}

/** What stopped a turn is no part of the text that its client saw. */
const seenBytes = ({ textBytes, mark }: FoundEnd): number => textBytes - mark.hiddenBytes;

const isBetter = (found: FoundEnd, than: FoundEnd | null): boolean =>
  than === null ||
  found.textBytes > than.textBytes ||
  (found.textBytes === than.textBytes && isNewer(found.end, than.end));

/**
 * Walks down the tokens whose text `text` begins with. What ends with a turn of `session` comes first, however long other ways are:
 * others may have sampled what is given here. Of equally long ways the newest counts.
 */
export function findText(root: TreeNode, text: Buffer, session: KnownSession | null = null): TextMatch {
  const search = new Search(root, text, session);
  const { own, any, inside, prompts, stops } = search;
  if (session !== null) {
    const ownInside = insideOwn(search, session);
    const ownStops: FoundEnd[] = [];
    for (const stop of stops) {
      const end = session.at(stop.mark);
      if (end !== null) ownStops.push({ ...stop, end });
    }
    if (own.best !== null || ownInside.length > 0 || ownStops.length > 0) {
      const keeps = own.best === null ? 0 : tokensAt(own.best);
      const known = prompts.filter((prompt) => prompt.own === own.best && prompt.mark.keeps === keeps);
      const match = markedOf(search, root, own, known);
      const isAmbiguous = match.isAmbiguous || isInsideOther(search, session);
      return { ...match, isAmbiguous, inside: ownInside, isOwn: true, stopped: stopOf(ownStops, own, text) };
    }
  }
  const known = prompts.filter((prompt) => prompt.any === any.best);
  const longer = inside
    .filter(({ textBytes }) => textBytes > (any.best?.textBytes ?? 0))
    .map((place) => ({ ...place, isAmbiguous: false }));
  return {
    ...markedOf(search, root, any, known),
    inside: longer.slice(0, MAX_INSIDE),
    isOwn: false,
    stopped: stopOf(stops, any, text),
  };
}

/** A prompt that is asked again counts before the end of a turn that it continues. */
function markedOf(
  { text }: Search,
  root: TreeNode,
  { best, isTied }: BestEnd,
  prompts: readonly FoundPrompt[],
): Pick<TextMatch, 'marked' | 'isAmbiguous'> {
  let marked: TextMatch['marked'] = best ?? { node: root, at: 0, textBytes: 0, mark: null };
  if (marked.textBytes < text.length) {
    for (const prompt of prompts) {
      if (marked.textBytes < text.length || prompt.mark.stamp > marked.mark!.stamp) marked = prompt;
    }
  }
  return { marked, isAmbiguous: isTied };
}

/** Places in the middle of what the session sampled itself, behind its last end: its client kept a part of it. */
function insideOwn({ inside, own: { best } }: Search, session: KnownSession): TextMatch['inside'] {
  const found: Found[] = [];
  const after = best === null ? 0 : partsFrom(best.end, tokensAt(best));
  for (const { node, at, textBytes, own } of inside) {
    if (textBytes <= (best?.textBytes ?? 0) || found.length === MAX_INSIDE) break;
    if (own !== best || !node.isSampled) continue;
    const part = partOf({ node, at }, session, after);
    let kept = part === null ? 0 : part.keeps - node.depth;
    // The client may as well have nothing of a token without text: it may be the first byte of a letter.
    while (kept > 0 && node.pieceAt(kept - 1).length === 0) kept--;
    if (kept > 0) found.push({ node, at: kept, textBytes: textBytes - node.textBefore(at) + node.textBefore(kept) });
  }
  // The same text may be the beginning of several turns with other ids.
  return found.map((place) => {
    const isAmbiguous = found.some((other) => other !== place && other.textBytes === place.textBytes);
    return { ...place, isAmbiguous };
  });
}

/**
 * Whether another turn of the session, with other tokens, begins with the same text up to the session's last end or further. The client
 * may have kept a part of that turn.
 */
function isInsideOther({ inside, own: { best } }: Search, session: KnownSession): boolean {
  if (best === null) return false;
  for (const { node, at, textBytes, own } of inside) {
    if (textBytes < best.textBytes) break;
    if (own === best || !node.isSampled) continue;
    const part = partOf({ node, at }, session, 0);
    if (part === null || (part.keeps === part.end.tokens && !part.isAmbiguous)) continue;
    const kept = part.keeps - node.depth;
    if (kept > 0 && textBytes - node.textBefore(at) + node.textBefore(kept) >= best.textBytes) return true;
  }
  return false;
}

/** What stops a turn is a token or two. */
const STOP_NODES = 2;

/** The ends of turns, in a node or just below it, with so much visible text. */
function addStops(stops: FoundEnd[], node: TreeNode, textAt: number, visible: number, depth = STOP_NODES): void {
  for (const mark of node.marks ?? []) {
    if (mark.kind === 'prompt' || mark.hiddenBytes === 0) continue;
    if (textAt + node.textBefore(mark.at) - mark.hiddenBytes !== visible) continue;
    stops.push({ node, at: mark.at, textBytes: visible, mark, end: mark.unnamed! });
  }
  if (depth === 0) return;
  for (const child of node.children) {
    addStops(stops, child, textAt + node.textBefore(node.length), visible, depth - 1);
  }
}

/** The newest of them, unless a newer turn ends with the text itself. */
function stopOf(stops: readonly FoundEnd[], { best, isTied }: BestEnd, text: Buffer): TextMatch['stopped'] {
  let newestStop: FoundEnd | null = null;
  for (const stop of stops) if (isBetter(stop, newestStop)) newestStop = stop;
  if (newestStop === null) return null;
  const { end } = newestStop;
  const whole = best !== null && best.textBytes === text.length ? best : null;
  if (whole !== null && whole.end !== end && isNewer(whole.end, end)) return null;
  const isOther = stops.some((stop) => stop.end.digest !== end.digest);
  const isAmbiguous = isOther || (whole !== null && (isTied || whole.end.digest !== end.digest));
  return { ...newestStop, isAmbiguous };
}

/** Where the longest beginning of `ids` ends; one with an end of `session` on its way comes first. */
export function findIds(root: TreeNode, ids: Int32Array, session: KnownSession | null = null): Found {
  let best = { node: root, own: 0, end: 0 };
  const ways = Array.from(root.withId(ids[0]!), (node) => ({ node, own: 0 }));
  for (let visits = 0; ways.length > 0 && visits < MAX_VISITS; visits++) {
    const { node, own: before } = ways.pop()!;
    const shared = node.sharedIds(ids, node.depth);
    const end = node.depth + shared;
    const own = session === null ? 0 : Math.max(before, lastOwn(node, shared, session));
    const isLonger = own > best.own || (own === best.own && end > best.end);
    if (isLonger || (own === best.own && end === best.end && newest(node) > newest(best.node)))
      best = { node, own, end };
    if (shared === node.length && end < ids.length)
      for (const child of node.withId(ids[end]!)) ways.push({ node: child, own });
  }
  return { node: best.node, at: best.end - best.node.depth, textBytes: 0 };
}

/** Tokens up to the last end of a session within the first `shared` tokens of a node; 0: it has none there. */
function lastOwn({ marks, depth }: TreeNode, shared: number, session: KnownSession): number {
  let last = 0;
  for (const mark of marks ?? []) {
    const isThere = mark.kind !== 'prompt' && mark.at <= shared && depth + mark.at > last;
    if (isThere && session.at(mark) !== null) last = depth + mark.at;
  }
  return last;
}

/** The stamp of the newest mark in a node, -1 without one. */
function newest(node: TreeNode): number {
  let stamp = -1;
  for (const mark of node.marks ?? []) if (mark.stamp > stamp) stamp = mark.stamp;
  return stamp;
}
