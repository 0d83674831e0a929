import { type Packed, PackedMemory, Slab } from '../../../kit/packed-memory.ts';
import { Children } from './children.ts';
import type { Mark } from './mark.ts';
import type { Run, Spelling, TextShared } from './run.ts';

/** A place that somebody still needs: its node is not removed, and it stays right when the node is split. */
export interface Place {
  node: TreeNode;
  /** So many tokens of the node stand before it. */
  at: number;
}

/** Where inserted tokens end. */
export interface Inserted extends Place {
  /** So many of them at the beginning have logprobs of a turn before in the tree. */
  readonly shared: number;
}

/*
 * What a node takes beside its words, as measured on Node 24 (64 bits; V8's heap after a collection): the object, its place in
 * `Children` and in packed memory. (Where nodes have several children, that place is 150.)
 */
const NODE_BYTES = 420;

const NO_WORDS = new Int32Array(0);
const NO_TEXT = Buffer.alloc(0);
const NONE: readonly TreeNode[] = [];

/** Where the words of a node are put together when its old ones are among what they are made of. */
let scratch = new Slab(new ArrayBuffer(16_384));

/** A run of tokens, all of one kind, between two places where trajectories part or end. */
export class TreeNode implements Run, Packed {
  parent: TreeNode | null = null;
  length = 0;
  isSampled = false;
  /** Its first token. */
  firstId = -1;
  /** Tokens of the trajectory before this node. */
  depth = 0;
  /** Ordinal of the newest weights that used it (`Versions`). */
  version = 0;
  /** When it was used last, in ms of the forest's clock; -Infinity: the sessions that used it are over. */
  usedMs = 0;
  marks: Mark[] | null = null;
  places: Place[] | null = null;
  /** In order of use: towards the newest. */
  newer: TreeNode | null = null;
  older: TreeNode | null = null;
  spelling: Spelling | null = null;
  /** Where its words are: logprobs (if any), ids and, unless they are spelled, ends and text, one after the other. */
  slab: Slab | null = null;
  at = 0;
  #words = 0;
  #children: Children | null = null;
  #hasLogprobs = false;

  /** A view, made anew each time, as those below are, and good until anything is removed: for one token there is `idAt`. */
  get ids(): Int32Array {
    return this.#view(this.#idsAt, this.length);
  }

  get ends(): Int32Array {
    return this.spelling === null ? this.#view(this.#idsAt + this.length, this.length) : NO_WORDS;
  }

  get text(): Buffer {
    if (this.spelling !== null || this.slab === null) return NO_TEXT;
    const from = 4 * (this.at + this.#idsAt + 2 * this.length);
    return this.slab.bytes.subarray(from, from + this.textBefore(this.length));
  }

  get logprobs(): Float64Array | null {
    if (!this.#hasLogprobs) return null;
    return this.slab!.doubles.subarray(this.at / 2, this.at / 2 + this.length);
  }

  get hasLogprobs(): boolean {
    return this.#hasLogprobs;
  }

  idAt(at: number): number {
    return this.slab!.words[this.at + this.#idsAt + at]!;
  }

  /** How many of its tokens are those of `ids` from `done` on. */
  sharedIds(ids: Int32Array, done: number): number {
    if (this.slab === null) return 0;
    const { words } = this.slab;
    const first = this.at + this.#idsAt;
    const limit = Math.min(this.length, ids.length - done);
    let shared = 0;
    while (shared < limit && words[first + shared] === ids[done + shared]) shared++;
    return shared;
  }

  /** Bytes of text before token `at`. */
  textBefore(at: number): number {
    if (at === 0) return 0;
    const { words } = this.slab!;
    const ids = this.at + this.#idsAt;
    return this.spelling === null ? words[ids + this.length + at - 1]! : this.spelling.lengthOf(words, ids, ids + at);
  }

  /** The text of token `at`. */
  pieceAt(at: number): Buffer {
    if (this.spelling !== null) return this.spelling.bytesOf(this.idAt(at))!;
    return this.text.subarray(this.textBefore(at), this.textBefore(at + 1));
  }

  /** The first byte of its text, -1 where its first token has none. */
  get firstByte(): number {
    if (this.spelling !== null) return this.spelling.firstByteOf(this.idAt(0));
    return this.textBefore(1) === 0 ? -1 : this.slab!.bytes[4 * (this.at + this.#idsAt + 2 * this.length)]!;
  }

  /** How much of its text is what `text` goes on with at `textAt`. */
  match(text: Buffer, textAt: number): TextShared {
    const { words } = this.slab!;
    const ids = this.at + this.#idsAt;
    if (this.spelling !== null) return this.spelling.match(words, ids, ids + this.length, text, textAt);
    const bytes = sharedBytes(this.text, text, textAt);
    const tokens = bytes === this.textBefore(this.length) ? this.length : tokensWithin(this.ends, bytes);
    return { tokens, bytes };
  }

  get isLeaf(): boolean {
    return this.#children === null;
  }

  get isHeld(): boolean {
    return this.places !== null;
  }

  /** Never less than what it takes (`bench/radix-tree/million.ts`). */
  get bytes(): number {
    let marks = 0;
    if (this.marks !== null) for (const mark of this.marks) marks += mark.bytes;
    return NODE_BYTES + PackedMemory.bytesOf(this.#words) + marks;
  }

  /** Copies tokens of a run, in place of those that are here. */
  take(memory: PackedMemory, run: Run, from: number, to: number, logprobs = run.logprobs): void {
    const length = to - from;
    const cut = from === 0 || run.spelling !== null ? 0 : run.ends[from - 1]!;
    const textBytes = to === 0 || run.spelling !== null ? 0 : run.ends[to - 1]! - cut;
    const idsAt = logprobs === null ? 0 : 2 * length;
    const words = idsAt + (run.spelling === null ? 2 : 1) * length + Math.ceil(textBytes / 4);
    if (this.slab === null) {
      memory.take(this, words);
      fill(this.slab!, this.at, run, { from, to, cut, textBytes }, logprobs);
    } else {
      if (scratch.words.length < words) scratch = new Slab(new ArrayBuffer(16 * words));
      fill(scratch, 0, run, { from, to, cut, textBytes }, logprobs);
      memory.free(this);
      memory.take(this, words);
      this.slab.words.set(scratch.words.subarray(0, words), this.at);
    }
    this.#words = words;
    this.length = length;
    this.spelling = run.spelling;
    this.isSampled = run.isSampled;
    this.#hasLogprobs = logprobs !== null;
    this.firstId = length === 0 ? -1 : this.idAt(0);
  }

  get #idsAt(): number {
    return this.#hasLogprobs ? 2 * this.length : 0;
  }

  #view(from: number, length: number): Int32Array {
    return this.slab === null ? NO_WORDS : this.slab.words.subarray(this.at + from, this.at + from + length);
  }

  add(child: TreeNode): void {
    if (this.#children === null) this.#children = new Children(child);
    else this.#children.add(child);
    child.parent = this;
  }

  remove(child: TreeNode): void {
    if (!this.#children!.remove(child)) this.#children = null;
    child.parent = null;
  }

  /** Children whose first token begins with `byte`, or has no text; -1: only those. */
  *startingWith(byte: number): Iterable<TreeNode> {
    if (this.#children === null) return;
    if (byte >= 0) yield* this.#children.withByte(byte);
    yield* this.#children.withByte(-1);
  }

  /** Children whose first token is this one. */
  withId(id: number): readonly TreeNode[] {
    return this.#children?.withId(id) ?? NONE;
  }

  get children(): Iterable<TreeNode> {
    return this.#children?.all ?? [];
  }

  hold(at: number): Place {
    const place: Place = { node: this, at };
    if (this.places === null) this.places = [place];
    else this.places.push(place);
    return place;
  }

  /** Cuts it in two before token `at`. This object stays the lower part. @returns the upper one, which takes its place */
  split(memory: PackedMemory, at: number): TreeNode {
    const upper = new TreeNode();
    const parent = this.parent!;
    parent.remove(this);
    upper.depth = this.depth;
    upper.version = this.version;
    upper.usedMs = this.usedMs;
    upper.take(memory, this, 0, at);
    this.take(memory, this, at, this.length);
    this.depth += at;
    if (this.marks !== null) {
      const { marks } = this;
      upper.marks = orNull(marks.filter((mark) => mark.at <= at));
      this.marks = orNull(marks.filter((mark) => mark.at > at));
      for (const mark of upper.marks ?? []) mark.node = upper;
      for (const mark of this.marks ?? []) mark.at -= at;
    }
    if (this.places !== null) {
      const { places } = this;
      upper.places = orNull(places.filter((place) => place.at <= at));
      this.places = orNull(places.filter((place) => place.at > at));
      for (const place of upper.places ?? []) place.node = upper;
      for (const place of this.places ?? []) place.at -= at;
    }
    parent.add(upper);
    upper.add(this);
    return upper;
  }
}

export function release(place: Place): void {
  const { node } = place;
  if (node.places !== null) node.places = orNull(node.places.filter((other) => other !== place));
}

/** A copy: what `filter` answers has room for 17. */
const orNull = <T>(list: T[]): T[] | null => (list.length === 0 ? null : list.slice());

interface Part {
  readonly from: number;
  readonly to: number;
  /** Where its text begins, and how long it is. */
  readonly cut: number;
  readonly textBytes: number;
}

/** Lays a part of a run out as a node has it. */
function fill(
  { words, doubles, bytes }: Slab,
  start: number,
  { ids, spelling, ends, text }: Run,
  { from, to, cut, textBytes }: Part,
  logprobs: Float64Array | null,
): void {
  const length = to - from;
  let at = start;
  if (logprobs !== null) {
    for (let i = 0; i < length; i++) doubles[at / 2 + i] = logprobs[from + i]!;
    at += 2 * length;
  }
  words.set(length === ids.length ? ids : ids.subarray(from, to), at);
  if (spelling !== null) return;
  for (let i = 0; i < length; i++) words[at + length + i] = ends[from + i]! - cut;
  text.copy(bytes, 4 * (at + 2 * length), cut, cut + textBytes);
}

function sharedBytes(piece: Buffer, text: Buffer, textAt: number): number {
  const most = Math.min(piece.length, text.length - textAt);
  if (piece.compare(text, textAt, textAt + most, 0, most) === 0) return most;
  let shared = 0;
  while (piece[shared] === text[textAt + shared]) shared++;
  return shared;
}

/** How many tokens end within the first `bytes` bytes: ends only grow. */
export function tokensWithin(ends: Int32Array | Uint32Array, bytes: number): number {
  let low = 0;
  let high = ends.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle]! <= bytes) low = middle + 1;
    else high = middle;
  }
  return low;
}
