import type { Tokenizer } from '../tokens/tokenizer.ts';
import { encodeRest } from '../tokens/tokenizer.ts';
import { findText, isInLetter } from './find-text.ts';
import type { KnownSession } from './known-session.ts';
import { type Spot, isSampledSince, textOfLast, tokensAt } from './path.ts';
import { type Place, type TreeNode, release } from './tree-node.ts';

/** Ids of a text: up to `place` those that are known, then those of the rest. */
export interface ExactIds {
  /** Held: the caller releases it. */
  readonly place: Place;
  /** Bytes of the text up to there. */
  readonly textBytes: number;
  readonly rest: Int32Array;
  /** Several known turns with this text differ: it is not known which one is meant. */
  readonly isAmbiguous: boolean;
}

/** Tokens before a place inside of a run that are encoded again, to see whether the place is one where a token ends. */
const WINDOW_TOKENS = 24;
/** Bytes after it. */
const WINDOW_BYTES = 64;
/** How far back from where texts part such a place is looked for. */
const MAX_STEPS_BACK = 8;

/**
 * The ids of a text. Known ids are used up to the end of a prompt or turn, in turns of the request's session up to the last whole token
 * that the text contains, and in other turns only up to where encoding again agrees.
 *
 * @param endsTurn the text ends where a turn did: what stopped that turn belongs to it
 */
export async function exactIds(
  tokenizer: Tokenizer,
  root: TreeNode,
  text: string,
  options: { readonly endsTurn: boolean; readonly addSpecial: boolean; readonly session: KnownSession | null },
): Promise<ExactIds> {
  const bytes = Buffer.from(text);
  const { marked, inside, isOwn, stopped, isAmbiguous } = findText(root, bytes, options.session);
  if (options.endsTurn && stopped !== null) {
    const place = stopped.node.hold(stopped.at);
    return { place, textBytes: bytes.length, rest: new Int32Array(0), isAmbiguous: stopped.isAmbiguous };
  }
  // Encoding may take turns with other work: the tree can change meanwhile.
  const held = [marked, ...inside].map(({ node, at, textBytes }) => ({ place: node.hold(at), textBytes }));
  try {
    for (const [i, candidate] of held.slice(1).entries()) {
      const found = await partBefore(tokenizer, candidate, bytes, marked.textBytes, isOwn);
      // Without a session the tokens may be of any turn.
      const isOther = isAmbiguous && options.session === null;
      if (found !== null) return { ...found, isAmbiguous: isOther || inside[i]!.isAmbiguous };
    }
    const { place, textBytes } = held[0]!;
    const whole = await withRest(tokenizer, place, textBytes, bytes, options.addSpecial);
    return { ...whole, isAmbiguous };
  } finally {
    for (const { place } of held) release(place);
  }
}

async function withRest(
  tokenizer: Tokenizer,
  { node, at }: Place,
  textBytes: number,
  bytes: Buffer,
  addSpecial: boolean,
): Promise<Omit<ExactIds, 'isAmbiguous'>> {
  const place = node.hold(at);
  try {
    const rest = bytes.toString('utf8', textBytes);
    const isStart = node.depth + at === 0;
    const ids = isStart ? await tokenizer.encode(rest, addSpecial) : await encodeRest(tokenizer, rest);
    return { place, textBytes, rest: Int32Array.from(ids) };
  } catch (error) {
    release(place);
    throw error;
  }
}

/**
 * Goes back from where a text leaves known tokens to the end of a letter; in turns of other sessions (`isOwn` false), to a place at which
 * encoding again would have put the end of a token too.
 */
async function partBefore(
  tokenizer: Tokenizer,
  from: { readonly place: Place; readonly textBytes: number },
  bytes: Buffer,
  beyond: number,
  isOwn: boolean,
): Promise<Omit<ExactIds, 'isAmbiguous'> | null> {
  let { textBytes } = from;
  let step: Spot = { node: from.place.node, at: from.place.at };
  for (let i = 0; i < MAX_STEPS_BACK && textBytes > beyond; i++) {
    const place = step.node.hold(step.at);
    try {
      if (!isInLetter(bytes, textBytes) && (isOwn || (await agrees(tokenizer, place, bytes, textBytes)))) {
        return await withRest(tokenizer, place, textBytes, bytes, false);
      }
      const { node, at } = place;
      const upper = at > 1 ? node : node.parent;
      if (upper === null || upper.parent === null) return null;
      textBytes -= node.pieceAt(at - 1).length;
      step = { node: upper, at: at > 1 ? at - 1 : upper.length };
    } finally {
      release(place);
    }
  }
  return null;
}

async function agrees(tokenizer: Tokenizer, place: Place, bytes: Buffer, textBytes: number): Promise<boolean> {
  const before = windowBefore(tokenizer, place);
  if (before === null) return false;
  let end = Math.min(bytes.length, textBytes + WINDOW_BYTES);
  while (end < bytes.length && bytes[end]! >> 6 === 2) end--;
  const after = bytes.toString('utf8', textBytes, end);
  const [whole, rest] = [await encodeRest(tokenizer, before.text + after), await encodeRest(tokenizer, after)];
  const cut = whole.length - rest.length;
  if (!rest.every((id, i) => whole[cut + i] === id)) return false;
  const head = Buffer.concat(whole.slice(0, cut).map((id) => tokenizer.pieces.bytesOf(id) ?? Buffer.alloc(0)));
  if (head.toString('utf8') !== before.text) return false;
  return before.hasSampled || (cut === before.ids.length && before.ids.every((id, i) => whole[i] === id));
}

/**
 * The last tokens before a place, from one on that encoders start anew at whatever stands before it: a space after something that is
 * none. null: there is no such token, or the text of one is not its own.
 */
function windowBefore(
  { pieces: known }: Tokenizer,
  place: Place,
): { text: string; ids: readonly number[]; hasSampled: boolean } | null {
  const { ids, pieces } = textOfLast(place, WINDOW_TOKENS);
  if (!ids.every((id, i) => known.bytesOf(id)?.equals(pieces[i]!) === true)) return null;
  const reachesStart = ids.length < WINDOW_TOKENS;
  let start = reachesStart ? 0 : -1;
  for (let i = 1; i < ids.length && start < 0; i++) {
    if (pieces[i]![0] === 0x20 && (pieces[i - 1]!.at(-1) ?? 0x20) > 0x20) start = i;
  }
  if (start < 0) return null;
  return {
    text: Buffer.concat(pieces.slice(start)).toString('utf8'),
    ids: ids.slice(start),
    hasSampled: isSampledSince(place, tokensAt(place) - ids.length + start),
  };
}
