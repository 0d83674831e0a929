import type { DatabaseSync, StatementSync } from 'node:sqlite';
import type { RecordChange, RecordTables } from './records.ts';

/** Records in the SQLite file of the turns. */
export class SqliteRecords implements RecordTables {
  readonly isShared = true;
  readonly #db: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();

  constructor(db: DatabaseSync) {
    this.#db = db;
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
    this.#prepare('DELETE FROM records WHERE tbl = ? AND at_ms < ?').run(table, beforeMs);
  }

  /** The database is about to close. */
  close(): void {
    this.#statements.clear();
  }

  #prepare(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (statement === undefined) this.#statements.set(sql, (statement = this.#db.prepare(sql)));
    return statement;
  }
}
