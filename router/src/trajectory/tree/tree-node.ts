import { Children } from './children.ts';

/** Which turn ended at a mark, so that the next one knows what it continues. */
export interface TurnEnd {
  readonly turn: string;
  readonly session: string;
  readonly index: number;
  /** Tokens of the trajectory up to here. */
  readonly tokens: number;
  /** Tokens of it before what was sampled in this turn. */
  readonly from: number;
  /** Where a turn before it was sampled as beginning with the same tokens: its own logprobs of them. */
  readonly own: Float64Array | null;
}

/**
 * `turn`: the end of a turn. `seen`: the end of what its client saw of it. Other tokens may follow there, whatever they are.
 * `prompt`: the end of a prompt; what follows may be a part of the same word, so it only counts for the same prompt.
 */
export type MarkKind = 'turn' | 'seen' | 'prompt';

/** A place where something ended. */
export interface Mark {
  readonly kind: MarkKind;
  /** So many tokens of its node stand before it. */
  at: number;
  /** Bytes of text before it that the engine left out of its answer (what stopped it). */
  readonly hiddenBytes: number;
  /** Of a turn, and of what was seen of it; null otherwise. */
  readonly end: TurnEnd | null;
  /** Later ones are larger. */
  readonly stamp: number;
}

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

/** Tokens of one kind in a row. Where they are put into a tree it keeps their arrays: nobody may change them afterwards. */
export interface Run {
  readonly ids: Int32Array;
  /** After token `i` so many bytes of `text` are behind. */
  readonly ends: Uint32Array;
  readonly text: Buffer;
  /** null: all 0. */
  readonly logprobs: Float64Array | null;
  readonly isSampled: boolean;
}

/** What a node costs beside its tokens (measured with 1 M nodes of 8 tokens on Node 24: 1.0 KB in all, 810 without their bytes). */
const NODE_BYTES = 850;

const NO_IDS = new Int32Array(0);
const NO_ENDS = new Uint32Array(0);
const NO_TEXT = Buffer.alloc(0);

/** A run of tokens, all of one kind, between two places where trajectories part or end. */
export class TreeNode {
  parent: TreeNode | null = null;
  ids: Int32Array = NO_IDS;
  ends: Uint32Array = NO_ENDS;
  text: Buffer = NO_TEXT;
  logprobs: Float64Array | null = null;
  isSampled = false;
  /** Tokens of the trajectory before this node. */
  depth = 0;
  /** Ordinal of the newest weights that used it (`Versions`). */
  version = 0;
  marks: Mark[] | null = null;
  places: Place[] | null = null;
  /** In order of use: towards the newest. */
  newer: TreeNode | null = null;
  older: TreeNode | null = null;
  #children: Children | null = null;

  get length(): number {
    return this.ids.length;
  }

  get isLeaf(): boolean {
    return this.#children === null;
  }

  get isHeld(): boolean {
    return this.places !== null;
  }

  get bytes(): number {
    let own = 0;
    for (const { end } of this.marks ?? []) own += end?.own?.byteLength ?? 0;
    return NODE_BYTES + 8 * this.ids.length + this.text.length + (this.logprobs?.byteLength ?? 0) + own;
  }

  /** Bytes of text before token `at`. */
  textBefore(at: number): number {
    return at === 0 ? 0 : this.ends[at - 1]!;
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
    return this.#children?.withId(id) ?? [];
  }

  get children(): Iterable<TreeNode> {
    return this.#children?.all ?? [];
  }

  hold(at: number): Place {
    const place: Place = { node: this, at };
    (this.places ??= []).push(place);
    return place;
  }

  /** Cuts it in two before token `at`. This object stays the lower part. @returns the upper one, which takes its place */
  split(at: number): TreeNode {
    const upper = new TreeNode();
    const parent = this.parent!;
    parent.remove(this);
    const cut = this.textBefore(at);
    upper.isSampled = this.isSampled;
    upper.depth = this.depth;
    upper.version = this.version;
    upper.ids = inPlace(this.ids.subarray(0, at));
    upper.ends = inPlace(this.ends.subarray(0, at));
    upper.text = Buffer.from(this.text.subarray(0, cut));
    upper.logprobs = this.logprobs && inPlace(this.logprobs.subarray(0, at));
    this.ids = inPlace(this.ids.subarray(at));
    this.ends = inPlace(this.ends.subarray(at));
    this.text = Buffer.from(this.text.subarray(cut));
    this.logprobs = this.logprobs && inPlace(this.logprobs.subarray(at));
    for (let i = 0; i < this.ends.length; i++) this.ends[i]! -= cut;
    this.depth += at;
    if (this.marks !== null) {
      const { marks } = this;
      upper.marks = orNull(marks.filter((mark) => mark.at <= at));
      this.marks = orNull(marks.filter((mark) => mark.at > at));
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
  node.places = orNull((node.places ?? []).filter((other) => other !== place));
}

/** A part of an array, in memory of its own unless it needs half of what it is in. */
const inPlace = <A extends Int32Array | Uint32Array | Float64Array>(part: A): A =>
  2 * part.byteLength >= part.buffer.byteLength ? part : (part.slice() as A);

const orNull = <T>(list: T[]): T[] | null => (list.length === 0 ? null : list);
