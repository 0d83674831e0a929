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

/** Tokens of one kind in a row. A tree copies what it takes of them. */
export interface Run {
  readonly ids: Int32Array;
  /** After token `i` so many bytes of `text` are behind. */
  readonly ends: Int32Array | Uint32Array;
  readonly text: Buffer;
  /** null: all 0. */
  readonly logprobs: Float64Array | null;
  readonly isSampled: boolean;
}

/*
 * What a node takes, as measured on Node 24 (64 bits; V8's heap after a collection, and the process's memory beside it): the object
 * 160, its place in `Children` at most 150 where nodes have several, its memory's two objects 200 and what is allocated for
 * them outside of V8's heap 190.
 */
const NODE_BYTES = 700;
/** The object, the list it is in, and a `TurnEnd` with the names in it. */
const MARK_BYTES = 100;
const TURN_END_BYTES = 250;
/** A typed array beside its data. */
const ARRAY_BYTES = 300;

const NO_WORDS = new Int32Array(0);

/** A run of tokens, all of one kind, between two places where trajectories part or end. */
export class TreeNode implements Run {
  parent: TreeNode | null = null;
  length = 0;
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
  #hasLogprobs = false;
  /**
   * Logprobs (if any), ids, ends and text, one after the other: four arrays would cost 900 bytes more than their data, and a part of
   * another array keeps all of that one.
   */
  #words: Int32Array<ArrayBuffer> = NO_WORDS;

  /** A view, made anew each time, as those below are: for one token there is `idAt`. */
  get ids(): Int32Array {
    return new Int32Array(this.#words.buffer, 4 * this.#idsAt, this.length);
  }

  get ends(): Int32Array {
    return new Int32Array(this.#words.buffer, 4 * (this.#idsAt + this.length), this.length);
  }

  get text(): Buffer {
    return Buffer.from(this.#words.buffer, 4 * (this.#idsAt + 2 * this.length), this.textBefore(this.length));
  }

  get logprobs(): Float64Array | null {
    return this.#hasLogprobs ? new Float64Array(this.#words.buffer, 0, this.length) : null;
  }

  get hasLogprobs(): boolean {
    return this.#hasLogprobs;
  }

  idAt(at: number): number {
    return this.#words[this.#idsAt + at]!;
  }

  /** Bytes of text before token `at`. */
  textBefore(at: number): number {
    return at === 0 ? 0 : this.#words[this.#idsAt + this.length + at - 1]!;
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
    for (const { end } of this.marks ?? []) {
      marks += MARK_BYTES + (end === null ? 0 : TURN_END_BYTES);
      if (end !== null && end.own !== null) marks += ARRAY_BYTES + end.own.byteLength;
    }
    return NODE_BYTES + this.#words.byteLength + marks;
  }

  /** Copies tokens of a run, in place of those that are here. */
  take(run: Run, from: number, to: number, logprobs = run.logprobs): void {
    const { ids, ends, text } = run;
    const length = to - from;
    const cut = from === 0 ? 0 : ends[from - 1]!;
    const textBytes = (to === 0 ? 0 : ends[to - 1]!) - cut;
    const idsAt = logprobs === null ? 0 : 2 * length;
    const words = new Int32Array(idsAt + 2 * length + Math.ceil(textBytes / 4));
    const { buffer } = words;
    if (logprobs !== null) {
      const own = new Float64Array(buffer, 0, length);
      for (let i = 0; i < length; i++) own[i] = logprobs[from + i]!;
    }
    for (let i = 0; i < length; i++) {
      words[idsAt + i] = ids[from + i]!;
      words[idsAt + length + i] = ends[from + i]! - cut;
    }
    text.copy(new Uint8Array(buffer, 4 * (idsAt + 2 * length)), 0, cut, cut + textBytes);
    this.#words = words;
    this.length = length;
    this.isSampled = run.isSampled;
    this.#hasLogprobs = logprobs !== null;
  }

  get #idsAt(): number {
    return this.#hasLogprobs ? 2 * this.length : 0;
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
    upper.take(this, 0, at);
    this.take(this, at, this.length);
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

/** A copy: what `filter` answers has room for 17. */
const orNull = <T>(list: T[]): T[] | null => (list.length === 0 ? null : list.slice());
