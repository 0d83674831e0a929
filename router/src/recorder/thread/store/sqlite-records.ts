import type { StatementSync } from 'node:sqlite';
import type { RecordChange, RecordTables } from './records.ts';

/** Records in the SQLite file of the turns. */
export class SqliteRecords implements RecordTables {
  readonly isShared = true;
  readonly #prepare: (sql: string) => StatementSync;
  readonly #transaction: (write: () => void) => void;

  constructor(prepare: (sql: string) => StatementSync, transaction: (write: () => void) => void) {
    this.#prepare = prepare;
    this.#transaction = transaction;
  }

  all(table: string) {
    const rows = this.#prepare('SELECT key, value FROM records WHERE tbl = ?').all(table);
    return rows.map(({ key, value }) => [key as string, value as string] as const);
  }

  get(table: string, key: string): string | null {
    const row = this.#prepare('SELECT value FROM records WHERE tbl = ? AND key = ?').get(table, key);
    return (row?.['value'] as string | undefined) ?? null;
  }

  write(changes: readonly RecordChange[], nowMs: number): void {
    const put = this.#prepare('INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)');
    const remove = this.#prepare('DELETE FROM records WHERE tbl = ? AND key = ?');
    this.#transaction(() => {
      for (const { table, key, value } of changes) {
        if (value === null) remove.run(table, key);
        else put.run(table, key, nowMs, value);
      }
    });
  }

  prune(table: string, beforeMs: number): void {
    this.#prepare('DELETE FROM records WHERE tbl = ? AND at_ms < ?').run(table, beforeMs);
  }
}
