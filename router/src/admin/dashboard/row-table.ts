interface Row {
  readonly json: string;
  /** The tick at which it last changed. */
  readonly tick: number;
}

/** What changed: rows as JSON, and the keys of those that are gone. */
export interface RowChanges {
  readonly set: readonly string[];
  readonly gone: readonly string[];
}

/** Removals that are remembered. */
const MAX_GONE = 10_000;

/** Rows of JSON by key, and when each changed last, so that every reader gets what changed since its own last tick. */
export class RowTable {
  /** Those that changed last come last. */
  readonly #rows = new Map<string, Row>();
  #gone: { readonly key: string; readonly tick: number }[] = [];
  /** Removals up to this tick are forgotten. */
  #forgottenTick = -1;

  get size(): number {
    return this.#rows.size;
  }

  keys(): IterableIterator<string> {
    return this.#rows.keys();
  }

  has(key: string): boolean {
    return this.#rows.has(key);
  }

  put(key: string, json: string, tick: number): void {
    if (this.#rows.get(key)?.json === json) return;
    this.#rows.delete(key);
    this.#rows.set(key, { json, tick });
  }

  drop(key: string, tick: number): void {
    if (!this.#rows.delete(key)) return;
    this.#gone.push({ key, tick });
    if (this.#gone.length <= 2 * MAX_GONE) return;
    this.#forgottenTick = this.#gone[MAX_GONE - 1]!.tick;
    this.#gone = this.#gone.slice(MAX_GONE);
  }

  /** Whether all removals after this tick are remembered. */
  knows(tick: number): boolean {
    return tick < 0 || tick >= this.#forgottenTick;
  }

  /** What changed after `tick`; all rows if that is -1. */
  since(tick: number): RowChanges {
    const set: string[] = [];
    for (const row of this.#rows.values()) if (row.tick > tick) set.push(row.json);
    if (tick < 0) return { set, gone: [] };
    // A key that is back has a row.
    const gone = this.#gone.filter((each) => each.tick > tick && !this.#rows.has(each.key)).map(({ key }) => key);
    return { set, gone };
  }
}
