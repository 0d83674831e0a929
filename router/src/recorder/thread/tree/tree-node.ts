import type { ListNode } from '../../../kit/linked-list.ts';
import type { Mark } from './mark.ts';
import { commonLength } from '../tokens/ids.ts';
import type { TextShared, TokenPieces } from '../tokens/pieces.ts';
import { type Run, pieceOf } from './run.ts';

/** A position that is in use: its node is not removed, and it is updated when the node is split. */
export interface Place {
  node: TreeNode;
  /** Tokens of the node before it. */
  at: number;
}

/** Where inserted tokens end. */
export interface Inserted extends Place {
  /** So many of them at the beginning have logprobs of a turn before in the tree. */
  readonly shared: number;
}

/**
 * What a node takes beside its tokens, as measured on Node 24 (64 bits; V8's heap after a collection): the object, its place in `Children`,
 * and its arrays. (If nodes have several children, that place is 150.)
 */
const NODE_BYTES = 450;
/** Of each array: V8's objects for it and its buffer, and what the allocator adds. */
const ARRAY_BYTES = 208;

const NO_IDS = new Int32Array(0);
const NO_ENDS = new Uint32Array(0);
const NO_TEXT = Buffer.alloc(0);
const NONE: readonly TreeNode[] = [];

/** A run of tokens, all of one kind, between two places where trajectories part or end. */
export class TreeNode implements Run {
  parent: TreeNode | null = null;
  isSampled = false;
  /** Tokens of the trajectory before this node. */
  depth = 0;
  /** Ordinal of the newest weights that used it (`Versions`). */
  version = 0;
  /** When it was used last, in ms of the forest's clock; -Infinity: the sessions that used it are over. */
  usedMs = 0;
  marks: Mark[] | null = null;
  places: Place[] | null = null;
  /** Its place in the order of use. */
  use: ListNode<TreeNode> | null = null;
  spelling: TokenPieces | null = null;
  ids: Int32Array = NO_IDS;
  /** `ends` and `text` are empty if the tokens are spelled. */
  ends: Uint32Array = NO_ENDS;
  text: Buffer = NO_TEXT;
  logprobs: Float64Array | null = null;
  #children: Children | null = null;

  get length(): number {
    return this.ids.length;
  }

  /** The first token; -1: there is none. */
  get firstId(): number {
    return this.ids.length === 0 ? -1 : this.ids[0]!;
  }

  /** How many of its tokens are those of `ids` from `done` on. */
  sharedIds(ids: Int32Array, done: number): number {
    return commonLength(this.ids, ids.subarray(done));
  }

  /** Bytes of text before token `at`. */
  textBefore(at: number): number {
    if (at === 0) return 0;
    return this.spelling === null ? this.ends[at - 1]! : this.spelling.lengthOf(this.ids, 0, at);
  }

  /** The text of token `at`. */
  pieceAt(at: number): Buffer {
    return pieceOf(this, at);
  }

  /** The first byte of its text; -1: its first token has none. */
  get firstByte(): number {
    if (this.spelling !== null) return this.spelling.firstByteOf(this.ids[0]!);
    return this.textBefore(1) === 0 ? -1 : this.text[0]!;
  }

  /** How much of its text `text` continues with at `textAt`. */
  match(text: Buffer, textAt: number): TextShared {
    const { ids, spelling } = this;
    if (spelling !== null) return spelling.match(ids, 0, ids.length, text, textAt);
    const bytes = sharedBytes(this.text, text, textAt);
    const tokens = bytes === this.text.length ? ids.length : tokensWithin(this.ends, bytes);
    return { tokens, bytes };
  }

  get isLeaf(): boolean {
    return this.#children === null;
  }

  get isHeld(): boolean {
    return this.places !== null;
  }

  /** Never less than what it takes (`npm run bench -- radix-memory`). */
  get bytes(): number {
    let marks = 0;
    if (this.marks !== null) for (const mark of this.marks) marks += mark.bytes;
    return NODE_BYTES + sizeOf(this.ids) + sizeOf(this.ends) + sizeOf(this.text) + sizeOf(this.logprobs) + marks;
  }

  /** Copies tokens of a run, which may be this node, in place of its own. */
  take({ ids, spelling, ends, text, isSampled }: Run, from: number, to: number, logprobs: Float64Array | null): void {
    this.ids = ids.slice(from, to);
    this.logprobs = logprobs?.slice(from, to) ?? null;
    this.spelling = spelling;
    this.isSampled = isSampled;
    this.ends = NO_ENDS;
    this.text = NO_TEXT;
    if (spelling !== null) return;
    const cut = from === 0 ? 0 : ends[from - 1]!;
    this.ends = Uint32Array.from(ends.subarray(from, to), (end) => end - cut);
    // Memory of its own: a part of Node's pool of buffers would keep all of that pool.
    const own = Buffer.allocUnsafeSlow((to === 0 ? 0 : ends[to - 1]!) - cut);
    text.copy(own, 0, cut);
    this.text = own;
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
  split(at: number): TreeNode {
    const upper = new TreeNode();
    const parent = this.parent!;
    parent.remove(this);
    upper.depth = this.depth;
    upper.version = this.version;
    upper.usedMs = this.usedMs;
    upper.take(this, 0, at, this.logprobs);
    this.take(this, at, this.length, this.logprobs);
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

const sizeOf = (array: { readonly byteLength: number } | null): number =>
  array === null || array.byteLength === 0 ? 0 : ARRAY_BYTES + array.byteLength;

function sharedBytes(piece: Buffer, text: Buffer, textAt: number): number {
  const most = Math.min(piece.length, text.length - textAt);
  if (piece.compare(text, textAt, textAt + most, 0, most) === 0) return most;
  let shared = 0;
  while (piece[shared] === text[textAt + shared]) shared++;
  return shared;
}

/** How many tokens end within the first `bytes` bytes: ends only grow. */
export function tokensWithin(ends: Uint32Array, bytes: number): number {
  let low = 0;
  let high = ends.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle]! <= bytes) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Up to so many are searched in a list; more are in tables, which take at least a quarter of a KB for each node. */
const MAX_LISTED = 8;

/** The children of a node, by first id and by first byte of text. Several may have both in common: the same id with other text. */
class Children {
  /** null: they are in tables. */
  #list: readonly TreeNode[] | null;
  #byId: Map<number, TreeNode[]> | null = null;
  /** null, too, before the first search by text. */
  #byByte: Map<number, TreeNode[]> | null = null;

  constructor(first: TreeNode) {
    this.#list = [first];
  }

  add(child: TreeNode): void {
    if (this.#list !== null && this.#list.length < MAX_LISTED) {
      // A new list of exact size: `push` reserves space for 17.
      this.#list = [...this.#list, child];
      return;
    }
    if (this.#list !== null) {
      this.#byId = new Map();
      for (const listed of this.#list) this.#enter(listed);
      this.#list = null;
    }
    this.#enter(child);
  }

  /** @returns false: it was the last one */
  remove(child: TreeNode): boolean {
    if (this.#list !== null) {
      this.#list = this.#list.toSpliced(this.#list.indexOf(child), 1);
      return this.#list.length > 0;
    }
    leave(this.#byId!, child.firstId, child);
    if (this.#byByte !== null) leave(this.#byByte, child.firstByte, child);
    return this.#byId!.size > 0;
  }

  withId(id: number): readonly TreeNode[] {
    return this.#list?.filter((child) => child.firstId === id) ?? this.#byId!.get(id) ?? NONE;
  }

  /** Children whose first token begins with `byte`; -1: has no text. */
  withByte(byte: number): readonly TreeNode[] {
    if (this.#list !== null) return this.#list.filter((child) => child.firstByte === byte);
    if (this.#byByte === null) {
      this.#byByte = new Map();
      for (const child of this.all) enter(this.#byByte, child.firstByte, child);
    }
    return this.#byByte.get(byte) ?? NONE;
  }

  get all(): Iterable<TreeNode> {
    return this.#list ?? [...this.#byId!.values()].flat();
  }

  #enter(child: TreeNode): void {
    enter(this.#byId!, child.firstId, child);
    if (this.#byByte !== null) enter(this.#byByte, child.firstByte, child);
  }
}

function enter(table: Map<number, TreeNode[]>, key: number, child: TreeNode): void {
  const list = table.get(key);
  if (list === undefined) table.set(key, [child]);
  else list.push(child);
}

function leave(table: Map<number, TreeNode[]>, key: number, child: TreeNode): void {
  const list = table.get(key)!;
  if (list.length === 1) table.delete(key);
  else list.splice(list.indexOf(child), 1);
}
