/** What has words in packed memory. They are moved at times: where they are is only sure until others are freed. */
export interface Packed {
  /** null: it has none. */
  slab: Slab | null;
  /** The index of its first word in the slab: an even one, so that doubles may lie there. */
  at: number;
}

/** A quarter of a megabyte: few enough of them for V8, and little to have in vain. */
const SLAB_WORDS = 65_536;
/** What is larger has a slab of its own. */
const MAX_SHARING_WORDS = SLAB_WORDS / 8;

/** Slabs that wait for what comes. */
const MAX_SPARE = 4;

/** What stands before the words of each: how many there are, and the number of their owner, -1 once they are free. */
const HEAD_WORDS = 2;
const FREE = -1;

export class Slab {
  readonly words: Int32Array;
  readonly doubles: Float64Array;
  readonly bytes: Buffer;
  /** Words up to here are given out. */
  end = 0;
  /** So many of them are in use. */
  live = 0;

  constructor(memory: SharedArrayBuffer | ArrayBuffer) {
    this.words = new Int32Array(memory);
    this.doubles = new Float64Array(memory);
    this.bytes = Buffer.from(memory);
  }
}

const sizeOf = (words: number): number => HEAD_WORDS + ((words + 1) & ~1);

/**
 * Memory for many small things that come and go, one behind the other in slabs. To V8 each buffer is an object or two that it makes,
 * marks and sweeps, which costs microseconds a piece. A slab whose last thing went is used again; while more than a quarter of what is
 * in use lies free in between, the emptiest slab is emptied.
 */
export class PackedMemory {
  /** Words in use. */
  #live = 0;
  /** Words of all slabs, but for the spare ones. */
  #taken = 0;
  readonly #slabs = new Set<Slab>();
  #open: Slab | null = null;
  readonly #spare: Slab[] = [];
  readonly #owners: (Packed | null)[] = [];
  readonly #spareNumbers: number[] = [];

  /** What it has of the system. */
  get bytes(): number {
    return 4 * (this.#taken + this.#spare.length * SLAB_WORDS);
  }

  /** What so many words count: their head, and what may lie free for them. */
  static bytesOf(words: number): number {
    return words === 0 ? 0 : 5 * sizeOf(words);
  }

  /** Gives room for so many words to who has none. What is in them is left from others. */
  take(owner: Packed, words: number): void {
    const number = this.#spareNumbers.pop() ?? this.#owners.length;
    this.#owners[number] = owner;
    this.#place(owner, number, sizeOf(words));
  }

  /** Also moves others. */
  free(owner: Packed): void {
    const { slab, at } = owner;
    if (slab === null) return;
    const { words } = slab;
    const size = words[at - HEAD_WORDS]!;
    const number = words[at - 1]!;
    words[at - 1] = FREE;
    this.#owners[number] = null;
    this.#spareNumbers.push(number);
    owner.slab = null;
    slab.live -= size;
    this.#live -= size;
    if (slab.live === 0) this.#drop(slab);
    else if (this.#taken > this.#live + this.#live / 4 + 2 * SLAB_WORDS) this.#emptyOne();
  }

  #place(owner: Packed, number: number, size: number): void {
    let slab = this.#open;
    // Once it is free, nobody but V8 knows of its memory.
    if (size > MAX_SHARING_WORDS) slab = this.#add(new Slab(new ArrayBuffer(4 * size)));
    else if (slab === null || slab.end + size > SLAB_WORDS) {
      // Shared memory, although nobody shares it: of other buffers V8 counts what they hold, and collects its whole heap whenever
      // that has grown by 64 MB, garbage or not.
      slab = this.#add(this.#spare.pop() ?? new Slab(new SharedArrayBuffer(4 * SLAB_WORDS)));
      this.#open = slab;
    }
    const { words, end } = slab;
    words[end] = size;
    words[end + 1] = number;
    owner.slab = slab;
    owner.at = end + HEAD_WORDS;
    slab.end = end + size;
    slab.live += size;
    this.#live += size;
  }

  #add(slab: Slab): Slab {
    this.#slabs.add(slab);
    this.#taken += slab.words.length;
    return slab;
  }

  #drop(slab: Slab): void {
    slab.end = 0;
    if (slab === this.#open) return;
    this.#slabs.delete(slab);
    this.#taken -= slab.words.length;
    if (slab.words.length === SLAB_WORDS && this.#spare.length < MAX_SPARE) this.#spare.push(slab);
  }

  /** Moves what is left in the slab that has the least. */
  #emptyOne(): void {
    let emptiest: Slab | null = null;
    for (const slab of this.#slabs) {
      const isCandidate = slab !== this.#open && slab.words.length === SLAB_WORDS;
      if (isCandidate && (emptiest === null || slab.live < emptiest.live)) emptiest = slab;
    }
    if (emptiest === null) return;
    const { words, end } = emptiest;
    for (let at = 0; at < end;) {
      const size = words[at]!;
      const number = words[at + 1]!;
      if (number !== FREE) {
        const owner = this.#owners[number]!;
        this.#place(owner, number, size);
        owner.slab!.words.set(words.subarray(at + HEAD_WORDS, at + size), owner.at);
        this.#live -= size;
      }
      at += size;
    }
    emptiest.live = 0;
    this.#drop(emptiest);
  }
}
