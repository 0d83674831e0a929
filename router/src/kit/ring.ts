import { hash32 } from './hash.ts';

/** Points each member has on the ring: enough that shares differ little, few enough to search fast. */
export const POINTS_PER_MEMBER = 160;

/**
 * A consistent-hash ring: a key belongs to the member whose point follows it clockwise. Built of the members' names
 * alone, so the same set gives the same ring in any order; a member that leaves gives up only its own keys.
 */
export class HashRing {
  readonly #points: Uint32Array;
  /** Member of each point, by its place in `names`. */
  readonly #members: Uint32Array;

  constructor(names: readonly string[]) {
    const points = names.flatMap((name, member) =>
      Array.from({ length: POINTS_PER_MEMBER }, (_, i) => ({ at: hash32(`${name}#${i}`), name, member })),
    );
    // Two points may share a place: then the name decides, not the order of the list.
    points.sort((a, b) => a.at - b.at || (a.name < b.name ? -1 : 1));
    this.#points = Uint32Array.from(points, ({ at }) => at);
    this.#members = Uint32Array.from(points, ({ member }) => member);
  }

  /** The members clockwise from `key`, by their place in `names`; the first that `accepts` is the answer, -1 if none. */
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
