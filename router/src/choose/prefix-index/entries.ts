/**
 * The storage of the prefix index: records of fixed size in one typed array, so that a million of them are one object
 * for the garbage collector. Each record is in two rings in order of use: its slot's and the global one. Records with the
 * same hash are a list. The first of a list is found by its hash alone in an open-addressing table, the others by (hash,
 * slot) in the same table. Slots here are the tenures of the index.
 */

/** A record is 40 bytes: six 32-bit fields, the weight as its fourth double, two more fields. */
const FIELDS = 10;
const DOUBLES = 5;
const WEIGHT = 3;
const HASH = 0;
const SLOT = 1;
const NEWER = 2;
const OLDER = 3;
const SLOT_NEWER = 4;
const SLOT_OLDER = 5;
/** The list of a hash: 0 after its last record. Before its first record: minus the last one. */
const SAME_NEXT = 8;
const SAME_PREVIOUS = 9;
/** In place of a slot: the first record of a list. */
const ANY = -1;

/** The head of the global ring. It is never found: 0 in the table means an empty place. */
export const HEAD = 0;

export class Entries {
  size = 0;
  lastMoved = HEAD;
  // All memory is reserved at once; the system provides pages at the first write. Doubling full arrays blocked the
  // event loop for 40 to 90 ms at half a million entries.
  readonly #fields: Int32Array;
  readonly #weights: Float64Array;
  /** At most half full, so that a miss takes 2.5 probes. */
  readonly #table: Int32Array;
  readonly #mask: number;
  /** Records that were ever used; freed ones are linked through OLDER from `#free`. */
  #used = 1;
  #free = 0;
  // Per slot: its newest entry (0 for none), the number of its entries and their weight.
  #newest = new Int32Array(64);
  #counts = new Int32Array(64);
  #sums = new Float64Array(64);

  constructor(maxEntries: number) {
    this.#fields = new Int32Array((maxEntries + 1) * FIELDS);
    this.#weights = new Float64Array(this.#fields.buffer);
    this.#table = new Int32Array(2 ** Math.ceil(Math.log2(2 * maxEntries)));
    // The first long prompts would touch all pages of the table, which takes 15 ms, so 8 MB for a million entries are
    // touched now.
    this.#table.fill(0);
    this.#mask = this.#table.length - 1;
  }

  /** Memory that was written to, without the arrays by slot. */
  get bytes(): number {
    return this.#table.byteLength + this.#used * FIELDS * Int32Array.BYTES_PER_ELEMENT;
  }

  count(slot: number): number {
    return this.#counts[slot] ?? 0;
  }

  weight(slot: number): number {
    return this.#sums[slot] ?? 0;
  }

  /** The least recently used entry, or `HEAD`. */
  oldest(): number {
    return this.#fields[NEWER]!;
  }

  /** The least recently used entry of a slot that is not empty. */
  oldestOf(slot: number): number {
    // The ring is closed: the entry newer than the newest is the oldest.
    return this.#fields[this.#newest[slot]! * FIELDS + SLOT_NEWER]!;
  }

  /** @returns 0 if not found */
  find(hash: number, slot: number): number {
    const word = hash | 0;
    const fields = this.#fields;
    const table = this.#table;
    const first = this.first(hash);
    if (first === 0 || fields[first * FIELDS + SLOT] === slot) return first;
    if (fields[first * FIELDS + SAME_NEXT] === 0) return 0;
    for (let at = this.#home(word, slot); ; at = (at + 1) & this.#mask) {
      const entry = table[at]!;
      if (entry === 0) return 0;
      if (fields[entry * FIELDS + HASH] === word && fields[entry * FIELDS + SLOT] === slot) return entry;
    }
  }

  /** The first record of any slot with this hash; 0: there is none. */
  first(hash: number): number {
    const word = hash | 0;
    const fields = this.#fields;
    const table = this.#table;
    for (let at = this.#home(word, ANY); ; at = (at + 1) & this.#mask) {
      const entry = table[at]!;
      if (entry === 0) return 0;
      if (fields[entry * FIELDS + HASH] === word && fields[entry * FIELDS + SAME_PREVIOUS]! < 0) return entry;
    }
  }

  /** The next record with the same hash; 0: there is none. */
  next(entry: number): number {
    return this.#fields[entry * FIELDS + SAME_NEXT]!;
  }

  slotOf(entry: number): number {
    return this.#fields[entry * FIELDS + SLOT]!;
  }

  /** Moves the records of a list that follow `first` up to `last` to its end. */
  rotate(first: number, last: number): void {
    const fields = this.#fields;
    const from = fields[first * FIELDS + SAME_NEXT]!;
    const next = fields[last * FIELDS + SAME_NEXT]!;
    if (first === last || next === 0) return;
    const end = -fields[first * FIELDS + SAME_PREVIOUS]!;
    fields[first * FIELDS + SAME_NEXT] = next;
    fields[next * FIELDS + SAME_PREVIOUS] = first;
    fields[end * FIELDS + SAME_NEXT] = from;
    fields[from * FIELDS + SAME_PREVIOUS] = end;
    fields[last * FIELDS + SAME_NEXT] = 0;
    fields[first * FIELDS + SAME_PREVIOUS] = -last;
  }

  /**
   * Adds a missing entry as the next older one after `after`, an entry of the same slot, in both rings; after `HEAD` it
   * is the newest. The table must have room.
   */
  add(hash: number, slot: number, weight: number, after: number): number {
    if (slot >= this.#newest.length) this.#growSlots(slot);
    const entry = this.#take();
    this.#fields[entry * FIELDS + HASH] = hash;
    this.#fields[entry * FIELDS + SLOT] = slot;
    this.#weights[entry * DOUBLES + WEIGHT] = weight;
    this.#counts[slot]!++;
    this.#sums[slot]! += weight;
    this.size++;
    this.#join(entry, this.first(hash));
    this.#enter(entry);
    this.#link(entry, entry, after, slot);
    return entry;
  }

  /** Moves an entry to the place that `add` would give it. */
  move(entry: number, after: number): void {
    if (entry === after) return;
    const slot = this.#fields[entry * FIELDS + SLOT]!;
    this.#unlink(entry, entry, slot);
    this.#link(entry, entry, after, slot);
  }

  /**
   * As `move`, for an entry and those after it in both rings, as long as they match `hashes[from, end)` in order. So a
   * whole path moves at the cost of one search.
   * @returns how many were moved; the last of them is `lastMoved`
   */
  moveRun(first: number, hashes: Uint32Array, from: number, end: number, after: number): number {
    const fields = this.#fields;
    const slot = fields[first * FIELDS + SLOT]!;
    let last = first;
    let at = from + 1;
    for (; at < end; at++) {
      const next = fields[last * FIELDS + OLDER]!;
      // A path with the same hash twice: `after` cannot move after itself.
      if (next === HEAD || next === after || fields[next * FIELDS + HASH] !== (hashes[at]! | 0)) break;
      if (fields[last * FIELDS + SLOT_OLDER] !== next || fields[next * FIELDS + SLOT] !== slot) break;
      last = next;
    }
    this.lastMoved = last;
    if (first !== after && fields[after * FIELDS + OLDER] !== first) {
      this.#unlink(first, last, slot);
      this.#link(first, last, after, slot);
    }
    return at - from;
  }

  reweigh(entry: number, weight: number): void {
    this.#sums[this.#fields[entry * FIELDS + SLOT]!]! += weight - this.#weights[entry * DOUBLES + WEIGHT]!;
    this.#weights[entry * DOUBLES + WEIGHT] = weight;
  }

  remove(entry: number): void {
    const slot = this.#fields[entry * FIELDS + SLOT]!;
    this.#leave(entry);
    this.#part(entry);
    this.#unlink(entry, entry, slot);
    this.size--;
    const left = --this.#counts[slot]!;
    // Sums of doubles drift, so an empty slot is set to 0.
    this.#sums[slot] = left === 0 ? 0 : this.#sums[slot]! - this.#weights[entry * DOUBLES + WEIGHT]!;
    this.#fields[entry * FIELDS + OLDER] = this.#free;
    this.#free = entry;
  }

  /** `first` to `last`: already linked, or the same entry. */
  #link(first: number, last: number, after: number, slot: number): void {
    const fields = this.#fields;
    const older = fields[after * FIELDS + OLDER]!;
    fields[first * FIELDS + NEWER] = after;
    fields[last * FIELDS + OLDER] = older;
    fields[after * FIELDS + OLDER] = first;
    fields[older * FIELDS + NEWER] = last;
    const newest = this.#newest[slot]!;
    if (after === HEAD) this.#newest[slot] = first;
    // Newer than the newest means after the oldest; an entry alone in its slot is its own neighbour.
    const slotNewer = after !== HEAD ? after : newest === 0 ? last : fields[newest * FIELDS + SLOT_NEWER]!;
    const slotOlder = slotNewer === last ? first : fields[slotNewer * FIELDS + SLOT_OLDER]!;
    fields[first * FIELDS + SLOT_NEWER] = slotNewer;
    fields[last * FIELDS + SLOT_OLDER] = slotOlder;
    fields[slotNewer * FIELDS + SLOT_OLDER] = first;
    fields[slotOlder * FIELDS + SLOT_NEWER] = last;
  }

  #unlink(first: number, last: number, slot: number): void {
    const fields = this.#fields;
    const newer = fields[first * FIELDS + NEWER]!;
    const older = fields[last * FIELDS + OLDER]!;
    fields[newer * FIELDS + OLDER] = older;
    fields[older * FIELDS + NEWER] = newer;
    const slotNewer = fields[first * FIELDS + SLOT_NEWER]!;
    const slotOlder = fields[last * FIELDS + SLOT_OLDER]!;
    fields[slotNewer * FIELDS + SLOT_OLDER] = slotOlder;
    fields[slotOlder * FIELDS + SLOT_NEWER] = slotNewer;
    if (this.#newest[slot] === first) this.#newest[slot] = slotOlder === first ? 0 : slotOlder;
  }

  /** Adds a record to the list of its hash: as the second one, because the first one is filed by the hash alone. */
  #join(entry: number, first: number): void {
    const fields = this.#fields;
    const next = first === 0 ? 0 : fields[first * FIELDS + SAME_NEXT]!;
    fields[entry * FIELDS + SAME_NEXT] = next;
    fields[entry * FIELDS + SAME_PREVIOUS] = first === 0 ? -entry : first;
    if (first === 0) return;
    fields[first * FIELDS + SAME_NEXT] = entry;
    fields[(next === 0 ? first : next) * FIELDS + SAME_PREVIOUS] = next === 0 ? -entry : entry;
  }

  /** Takes a record that has left the table from the list of its hash. If it was the first one, the next one is filed in its stead. */
  #part(entry: number): void {
    const fields = this.#fields;
    const next = fields[entry * FIELDS + SAME_NEXT]!;
    const previous = fields[entry * FIELDS + SAME_PREVIOUS]!;
    if (previous > 0) {
      fields[previous * FIELDS + SAME_NEXT] = next;
      if (next !== 0) fields[next * FIELDS + SAME_PREVIOUS] = previous;
      else fields[this.first(fields[entry * FIELDS + HASH]!) * FIELDS + SAME_PREVIOUS] = -previous;
    } else if (next !== 0) {
      this.#leave(next);
      fields[next * FIELDS + SAME_PREVIOUS] = previous;
      this.#enter(next);
    }
  }

  #homeOf(entry: number): number {
    const fields = this.#fields;
    const isFirst = fields[entry * FIELDS + SAME_PREVIOUS]! < 0;
    return this.#home(fields[entry * FIELDS + HASH]!, isFirst ? ANY : fields[entry * FIELDS + SLOT]!);
  }

  /** Where the search for (hash, slot) begins. The slot spreads the hashes that workers share. */
  #home(hash: number, slot: number): number {
    const mixed = Math.imul(hash ^ Math.imul(slot + 1, 0x9e3779b1), 0x85ebca6b);
    return (mixed ^ (mixed >>> 15)) & this.#mask;
  }

  #enter(entry: number): void {
    let at = this.#homeOf(entry);
    while (this.#table[at] !== 0) at = (at + 1) & this.#mask;
    this.#table[at] = entry;
  }

  /** Empties a place and moves back the entries that probing had put after it. */
  #leave(entry: number): void {
    const table = this.#table;
    let gap = this.#homeOf(entry);
    while (table[gap] !== entry) gap = (gap + 1) & this.#mask;
    for (let at = (gap + 1) & this.#mask; table[at] !== 0; at = (at + 1) & this.#mask) {
      const moved = table[at]!;
      if (((at - this.#homeOf(moved)) & this.#mask) < ((at - gap) & this.#mask)) continue;
      table[gap] = moved;
      gap = at;
    }
    table[gap] = 0;
  }

  #take(): number {
    const free = this.#free;
    if (free === 0) return this.#used++;
    this.#free = this.#fields[free * FIELDS + OLDER]!;
    return free;
  }

  #growSlots(slot: number): void {
    const slots = Math.max(slot + 1, 2 * this.#newest.length);
    const [newest, counts, sums] = [this.#newest, this.#counts, this.#sums];
    this.#newest = new Int32Array(slots);
    this.#counts = new Int32Array(slots);
    this.#sums = new Float64Array(slots);
    this.#newest.set(newest);
    this.#counts.set(counts);
    this.#sums.set(sums);
  }
}
