import { hash32, hashBegun, hashFrom } from './hash.ts';
import { sortedTogether } from './radix-sort.ts';

/** Points per member: enough that shares differ little, few enough to search fast. */
export const POINTS_PER_MEMBER = 160;

const NUMBERS = Array.from({ length: POINTS_PER_MEMBER }, (_, i) => String(i));

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
    const count = names.length * POINTS_PER_MEMBER;
    const points = new Uint32Array(count);
    const members = new Uint32Array(count);
    let at = 0;
    for (const member of order) {
      const begun = hashBegun(`${names[member]!}#`);
      for (const number of NUMBERS) {
        points[at] = hashFrom(begun, number);
        members[at++] = member;
      }
    }
    // If two points have the same place, the name decides: the sort is stable and the names are sorted.
    [this.#points, this.#members] = sortedTogether(points, members);
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
