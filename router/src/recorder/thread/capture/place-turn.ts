import type { VersionSpan } from '../../../generation/delta.ts';
import { hash32 } from '../../../kit/hash.ts';
import type { AlignedTokens } from '../tokens/align.ts';
import type { Continued } from '../tree/continued.ts';
import type { TokenForest } from '../tree/forest.ts';
import type { KnownSession } from '../tree/known-session.ts';
import type { TurnEnd } from '../tree/mark.ts';
import { tokensAt } from '../tree/path.ts';
import type { Run } from '../tree/run.ts';
import { type Place, release, tokensWithin } from '../tree/tree-node.ts';

/** A turn that gets its place in a tree. */
export interface PlacedTurn {
  readonly id: string;
  readonly session: string;
  /** null: no request named the session. */
  readonly owner: KnownSession | null;
  readonly index: number;
  readonly continued: Continued | null;
  /** Of the sampled tokens; null: not returned. */
  readonly logprobs: Float64Array | null;
  /** Positions in what was sampled. */
  readonly versions: readonly VersionSpan[];
  readonly finishReason: string | null;
}

/** Adds the sampled tokens of a turn after its prompt, and marks the end of the turn. @param start held */
export function placeTurn(
  forest: TokenForest,
  start: Place,
  sampled: AlignedTokens,
  { id, session, owner, index, continued, logprobs, versions, finishReason }: PlacedTurn,
  version: number,
): void {
  const length = sampled.ids.length;
  if (length === 0) return;
  const run = runOf(sampled, logprobs, true);
  const from = tokensAt(start);
  const keeps = continued?.keeps ?? 0;
  const parent = continued?.end ?? null;
  const names = versions.map((span) => [span.version, span.from, span.to]);
  const digest = digestOf(logprobs, hash32(`${parent?.digest} ${keeps} ${JSON.stringify(names)}`));
  if (owner !== null && parent !== null && parent.owner !== null && parent.owner !== owner) {
    parent.owner.isForked = true;
  }
  const isCut = finishReason === null || finishReason === 'abort';
  const line = { parent, keeps, digest, isAmbiguous: continued?.isAmbiguous === true, isCut };
  const endOf = (shared: number): TurnEnd => {
    const own = shared === 0 ? null : (logprobs?.slice(0, shared) ?? null);
    const known = { hasLogprobs: logprobs !== null, own };
    return { turn: id, session, owner, index, tokens: from + length, from, ...known, ...line };
  };
  // The client continues after the text that it got: if a token ends there, the tree has a mark there too.
  const seen = seenOf(sampled);
  if (seen === 0) {
    const whole = forest.insert(start, run, version);
    forest.mark(whole, 'turn', endOf(whole.shared), sampled.hiddenBytes);
    return;
  }
  const inserted = forest.insert(start, part(run, 0, seen), version);
  const visible = inserted.node.hold(inserted.at);
  const hidden = forest.insert(visible, part(run, seen, length), version);
  const end = endOf(hidden.shared > 0 ? seen + hidden.shared : inserted.shared);
  forest.mark(visible, 'seen', end);
  release(visible);
  forest.mark(hidden, 'turn', end, sampled.hiddenBytes);
}

/** The number of tokens that the client got, if it did not get all of them and its text ends with a token; else 0. */
function seenOf({ ids, spelling, ends, text, hiddenBytes }: AlignedTokens): number {
  if (spelling !== null) return 0;
  const visible = text.length - hiddenBytes;
  const seen = tokensWithin(ends, visible);
  return seen > 0 && seen < ids.length && ends[seen - 1] === visible ? seen : 0;
}

/** Not for tokens with their usual text: the client gets complete ones. */
function part({ ids, ends, text, logprobs, isSampled }: Run, from: number, to: number): Run {
  const cut = from === 0 ? 0 : ends[from - 1]!;
  return {
    ids: ids.subarray(from, to),
    spelling: null,
    ends: ends.subarray(from, to).map((end) => end - cut),
    text: text.subarray(cut, ends[to - 1]),
    logprobs: logprobs?.subarray(from, to) ?? null,
    isSampled,
  };
}

export const runOf = (tokens: AlignedTokens, logprobs: Float64Array | null, isSampled: boolean): Run => ({
  ...tokens,
  logprobs,
  isSampled,
});

/** A 32-bit digest of numbers, continued from `begun`. NaN and -0 are taken as they are in memory. */
function digestOf(numbers: Float64Array | null, begun: number): number {
  let hash = begun ^ 0x811c9dc5;
  if (numbers !== null) {
    const words = new Uint32Array(numbers.buffer, numbers.byteOffset, 2 * numbers.length);
    for (let i = 0; i < words.length; i++) {
      hash = Math.imul(hash ^ words[i]!, 0x85ebca6b);
      hash ^= hash >>> 15;
    }
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0xc2b2ae35);
  return (hash ^ (hash >>> 13)) >>> 0;
}
