import type { DatabaseSync } from 'node:sqlite';
import type { RecordChange, RecordTables } from './records.ts';

/** Records in the SQLite file of the turns. */
export class SqliteRecords implements RecordTables {
  readonly #db: DatabaseSync;

  constructor(db: DatabaseSync) {
    this.#db = db;
  }

  all(table: string) {
    const rows = this.#db.prepare('SELECT key, value FROM records WHERE tbl = ?').all(table);
    return rows.map(({ key, value }) => [key as string, value as string] as const);
  }

  get(table: string, key: string): string | null {
    const row = this.#db.prepare('SELECT value FROM records WHERE tbl = ? AND key = ?').get(table, key);
    return (row?.['value'] as string | undefined) ?? null;
  }

  write(changes: readonly RecordChange[], nowMs: number): void {
    const put = this.#db.prepare('INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)');
    const remove = this.#db.prepare('DELETE FROM records WHERE tbl = ? AND key = ?');
    this.#db.exec('BEGIN IMMEDIATE');
    try {
      for (const { table, key, value } of changes) {
        if (value === null) remove.run(table, key);
        else put.run(table, key, nowMs, value);
      }
      this.#db.exec('COMMIT');
    } catch (error) {
      if (this.#db.isTransaction) this.#db.exec('ROLLBACK');
      throw error;
    }
  }

  prune(table: string, beforeMs: number): void {
    this.#db.prepare('DELETE FROM records WHERE tbl = ? AND at_ms < ?').run(table, beforeMs);
  }
}
