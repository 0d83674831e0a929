import { hash32, hashBegun, hashFrom } from './hash.ts';

/** Points per member: enough that shares differ little, few enough to search fast. */
export const POINTS_PER_MEMBER = 160;

/**
 * A consistent hash ring: a key belongs to the member whose point follows it clockwise. It depends only on the set of
 * names, not on their order; a removed member gives up only its own keys.
 */
export class HashRing {
  readonly #points: Uint32Array;
  /** The member of each point, by its index in `names`. */
  readonly #members: Uint32Array;

  constructor(names: readonly string[]) {
    const order = names.map((_, member) => member).toSorted((a, b) => (names[a]! < names[b]! ? -1 : 1));
    // A point and the rank of its member by name, which decides between equal points, in one number of at most 53 bits.
    const placed = new Float64Array(names.length * POINTS_PER_MEMBER);
    for (const [place, member] of order.entries()) {
      const begun = hashBegun(`${names[member]!}#`);
      for (let i = 0; i < POINTS_PER_MEMBER; i++) {
        placed[place * POINTS_PER_MEMBER + i] = hashFrom(begun, String(i)) * names.length + place;
      }
    }
    placed.sort();
    this.#points = new Uint32Array(placed.length);
    this.#members = new Uint32Array(placed.length);
    for (let i = 0; i < placed.length; i++) {
      this.#points[i] = placed[i]! / names.length;
      this.#members[i] = order[placed[i]! % names.length]!;
    }
  }

  /** The first member clockwise from `key` that `accepts`, by its index in `names`; -1 if none. */
  find(key: string, accepts: (member: number) => boolean): number {
    const count = this.#points.length;
    const start = this.#after(hash32(key));
    for (let i = 0; i < count; i++) {
      const member = this.#members[(start + i) % count]!;
      if (accepts(member)) return member;
    }
    return -1;
  }

  /** Index of the first point at or after `hash`. */
  #after(hash: number): number {
    let low = 0;
    let high = this.#points.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#points[middle]! < hash) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
