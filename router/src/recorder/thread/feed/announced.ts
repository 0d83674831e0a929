/** How long the place of a group is kept whose request has left no turn. */
const PLACE_MS = 600_000;
/** So many names have known sizes. */
const MAX_NAMES = 100_000;

interface Place {
  /** Unix ms. */
  readonly untilMs: number;
}

/**
 * Groups that may begin: a request with their name is on its way, and its session key is in the body. Only its turn tells whether the session
 * is a new one, so the group begins with the turn. Until then it has a place among the groups that may be pending.
 */
export class AnnouncedGroups {
  /** By tenant and name. The oldest first. */
  readonly #sizes = new Map<string, number>();
  /** The oldest first. */
  readonly #places = new Map<string, Place>();

  announce(key: string, size: number): void {
    this.#sizes.delete(key);
    this.#sizes.set(key, size);
    if (this.#sizes.size <= MAX_NAMES) return;
    const [oldest] = this.#sizes.keys();
    this.#sizes.delete(oldest!);
  }

  /** null: it was not announced. */
  sizeOf(key: string): number | null {
    return this.#sizes.get(key) ?? null;
  }

  /** A name that is announced again keeps its place. */
  keepPlace(key: string, nowMs: number): void {
    this.#places.delete(key);
    this.#places.set(key, { untilMs: nowMs + PLACE_MS });
  }

  /** Another one after each request that announces the name; null: it has none. */
  placeOf(key: string): Place | null {
    return this.#places.get(key) ?? null;
  }

  hasPlace(key: string): boolean {
    return this.#places.has(key);
  }

  /** Its turn has come: it has begun, or it does not begin. */
  freePlace(key: string): void {
    this.#places.delete(key);
  }

  places(nowMs: number): number {
    for (const [key, { untilMs }] of this.#places) {
      if (untilMs > nowMs) break;
      this.#places.delete(key);
    }
    return this.#places.size;
  }
}
