import type { Soon } from './store.ts';

/** A value to put, or null: to remove. */
export interface RecordChange {
  readonly table: string;
  readonly key: string;
  readonly value: string | null;
}

/** Small JSON values beside the turns, by table and key: the state of what is made of turns, for the next process. */
export interface RecordTables {
  /** Another router may have the same tables, also an earlier process during an upgrade. */
  readonly isShared: boolean;
  all(table: string): Soon<readonly (readonly [key: string, value: string])[]>;
  get(table: string, key: string): Soon<string | null>;
  /** All of the changes, or none. */
  write(changes: readonly RecordChange[], nowMs: number): Soon<void>;
  /** Removes what was put before this time (Unix ms). */
  prune(table: string, beforeMs: number): Soon<void>;
}

/** Records that end with the process. */
export class MemoryRecords implements RecordTables {
  readonly isShared = false;
  readonly #tables = new Map<string, Map<string, { readonly value: string; readonly atMs: number }>>();

  all(table: string) {
    return Array.from(this.#of(table), ([key, { value }]) => [key, value] as const);
  }

  get(table: string, key: string): string | null {
    return this.#of(table).get(key)?.value ?? null;
  }

  write(changes: readonly RecordChange[], nowMs: number): void {
    for (const { table, key, value } of changes) {
      if (value === null) this.#of(table).delete(key);
      else this.#of(table).set(key, { value, atMs: nowMs });
    }
  }

  prune(table: string, beforeMs: number): void {
    const records = this.#of(table);
    for (const [key, { atMs }] of records) if (atMs < beforeMs) records.delete(key);
  }

  #of(table: string) {
    let records = this.#tables.get(table);
    if (records === undefined) this.#tables.set(table, (records = new Map()));
    return records;
  }
}
