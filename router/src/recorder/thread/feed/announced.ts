import { Tally } from '../../../kit/tally.ts';
import { tenantKey } from '../../../classify/tenant-key.ts';

/** How long the place of a group is kept whose request has left no turn. */
const PLACE_MS = 600_000;
/** So many names have known sizes. */
const MAX_NAMES = 100_000;

interface Place {
  readonly tenant: string;
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
  /** How many each tenant has. */
  readonly #perTenant = new Tally();

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
  keepPlace(tenant: string, name: string, nowMs: number): void {
    const key = tenantKey(tenant, name);
    this.freePlace(key);
    this.#places.set(key, { tenant, untilMs: nowMs + PLACE_MS });
    this.#perTenant.add(tenant, 1);
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
    const place = this.#places.get(key);
    if (place === undefined) return;
    this.#places.delete(key);
    this.#perTenant.add(place.tenant, -1);
  }

  /** @param tenant null: of all tenants */
  places(tenant: string | null, nowMs: number): number {
    for (const [key, { untilMs }] of this.#places) {
      if (untilMs > nowMs) break;
      this.freePlace(key);
    }
    return tenant === null ? this.#places.size : this.#perTenant.of(tenant);
  }
}
