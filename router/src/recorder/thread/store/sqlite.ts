import type { VersionSpan } from '../../../generation/delta.ts';
import { existsSync, mkdirSync, statSync, statfsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { type OutcomeChange, type OutcomeQuery, type SessionOutcome, outcomeAfter } from '../../shared/outcome.ts';
import type { SessionName, Turn, TurnAmendment } from '../../shared/turn.ts';
import { SCHEMA_VERSION, missingTables, stepsFrom, versionProblem } from './sqlite-schema.ts';
import { SqliteRecords } from './sqlite-records.ts';
import {
  asNow,
  type DamagedTurn,
  type NewestQuery,
  type SessionHead,
  type SessionQuery,
  type StoreCounts,
  type TrajectoryStore,
  type TurnFilter,
  type TurnOutline,
  readRecord,
  readRecords,
} from './store.ts';

type Row = Record<string, unknown>;
type Value = string | number;

/** Fields of a turn that are not searched. */
type Details = Omit<TurnOutline, 'id' | 'session' | 'tenant' | 'group' | 'parent' | 'startedAtMs' | 'tokens'>;

/** Minimum time between counts: counting reads a whole index, and the count is requested every second. */
const LONG_COUNT_MS = 5;

/** How long to wait for a locked file. A write blocks all calls of its thread, and is retried anyway. */
const WRITE_WAIT_MS = 250;
const READ_WAIT_MS = 5_000;

/** What SQLite needs to open a file: an index of the write-ahead log, and two files beside it. */
const MIN_FREE_BYTES = 65_536;
const MIN_FREE_FILES = 2;

const OUTLINE = 'id, session, tenant, grp, parent, started_at_ms, tokens, details';

/**
 * Turns in a SQLite file of the data folder. It blocks, so it lives on the recorder thread; a write-ahead log lets
 * others (an export) read meanwhile. After a kill or a power cut the file holds all but the last moments.
 */
export class SqliteStore implements TrajectoryStore {
  readonly place: string;
  readonly records: SqliteRecords;
  readonly #db: DatabaseSync;
  readonly #file: bigint | null;
  readonly #statements = new Map<string, StatementSync>();
  #turns = 0;
  #countAgainMs = 0;

  /**
   * @param isReader reads what a router writes, or wrote, and changes nothing
   * @param syncs what is put is on the disk when `put` returns, not only handed to the operating system
   */
  constructor(dataDir: string, isReader = false, syncs = false) {
    this.place = join(dataDir, 'trajectories.sqlite');
    if (!isReader) mkdirSync(dataDir, { recursive: true });
    else if (!existsSync(this.place))
      throw new Error(
        `${this.place}: there is no such file: no trajectories were captured (the router needs --plugin radix-tree, --plugin chat-sessions or --capture-chat)`,
      );
    const { db, version } = opened(this.place, isReader);
    this.#db = db;
    this.#file = fileAt(this.place);
    this.records = new SqliteRecords(
      (sql) => this.#prepare(sql),
      (write) => this.#transaction(write),
    );
    const problem = versionProblem(version, isReader);
    if (problem !== null) {
      this.#db.close();
      throw new Error(`${this.place}: ${problem}`);
    }
    // Not in files of the system's temporary folder: it may be read-only, or full, while the data folder is neither.
    this.#db.exec('PRAGMA temp_store = MEMORY');
    if (isReader) {
      // A file of an older schema lacks tables: empty temporary ones replace them.
      if (version < SCHEMA_VERSION) this.#db.exec(missingTables(version));
      return;
    }
    // NORMAL: the log is written through at checkpoints. A power cut may cost the last turns, never the file.
    const synchronous = syncs ? 'FULL' : 'NORMAL';
    this.#db.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = ${synchronous}; PRAGMA recursive_triggers = ON`);
    if (version === SCHEMA_VERSION) return;
    this.#db.exec(`BEGIN IMMEDIATE;${stepsFrom(version)}PRAGMA user_version = ${SCHEMA_VERSION};COMMIT`);
  }

  put(turns: readonly Turn[]): void {
    this.#transaction(() => {
      for (const turn of turns) this.#put(turn);
    });
  }

  amend(amendments: readonly TurnAmendment[]): void {
    this.#transaction(() => {
      const change = this.#prepare(
        "UPDATE turns SET details = json_set(details, '$.versions', json(?)) WHERE id = ? AND json_valid(details)",
      );
      for (const { id, versions } of amendments) {
        if (change.run(JSON.stringify(versions), id).changes === 0) continue;
        this.#prepare('DELETE FROM versions WHERE turn = ?').run(id);
        this.#putVersions(id, versions);
      }
    });
  }

  get(id: string): Turn | null {
    const row = this.#prepare('SELECT * FROM turns WHERE id = ?').get(id);
    return row === undefined ? null : turnOf(row);
  }

  sessions(query: SessionQuery): readonly SessionHead[] {
    const { where, values } = conditions(query);
    const ended = outcomeConditions(query);
    const isNewestFirst = query.order === 'newest';
    ended.add(isNewestFirst ? 'f.id < ?' : 'f.id > ?', query.after);
    const sql = `SELECT f.id, f.session, f.tenant, o.finished_at_ms, o.reward, o.labels
      FROM turns f LEFT JOIN outcomes o ON o.session = f.session AND o.tenant = f.tenant
      WHERE f.is_first = 1 AND ${ended.where.join(' AND ')} AND EXISTS
      (SELECT 1 FROM turns t WHERE t.session = f.session AND t.tenant = f.tenant AND ${where.join(' AND ')})
      ORDER BY f.id ${isNewestFirst ? 'DESC' : 'ASC'} LIMIT ?`;
    const rows = this.#prepare(sql).all(...ended.values, ...values, query.limit);
    return rows.map((row) => ({
      session: row['session'] as string,
      tenant: row['tenant'] as string,
      firstTurn: row['id'] as string,
      outcome: outcomeOfRow(row),
    }));
  }

  finish(name: SessionName, change: OutcomeChange, nowMs: number): number {
    const { session, tenant } = name;
    const heads = this.sessions({ session, tenant, limit: Number.MAX_SAFE_INTEGER });
    this.#transaction(() => {
      for (const { tenant: whose, outcome } of heads) {
        const { finishedAtMs, reward, labels } = outcomeAfter(outcome, change, nowMs);
        const put = this.#prepare('INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?, ?)');
        put.run(session, whose, finishedAtMs, reward, JSON.stringify(labels));
      }
    });
    return heads.length;
  }

  newest({ before, limit, ...query }: NewestQuery, onDamaged?: (turn: DamagedTurn) => void): readonly TurnOutline[] {
    const { where, values, add } = conditions(query);
    add('t.id < ?', before);
    const sql = `SELECT ${OUTLINE} FROM turns t WHERE ${where.join(' AND ')} ORDER BY t.id DESC LIMIT ?`;
    const rows = this.#prepare(sql).all(...values, limit);
    return readRecords(rows, outlineOfRow, onDamaged && ((row) => onDamaged(keysOfRow(row))));
  }

  removeSession(session: string, tenant?: string): number {
    const { where, values } = conditions({ session, tenant });
    let removed = 0;
    this.#transaction(() => {
      removed = Number(this.#prepare(`DELETE FROM turns AS t WHERE ${where.join(' AND ')}`).run(...values).changes);
      this.#prepare(`DELETE FROM outcomes AS t WHERE ${where.join(' AND ')}`).run(...values);
    });
    return removed;
  }

  counts(): StoreCounts {
    const beganMs = performance.now();
    if (beganMs >= this.#countAgainMs) {
      this.#turns = this.#prepare('SELECT count(*) AS n FROM turns').get()!['n'] as number;
      const tookMs = performance.now() - beganMs;
      this.#countAgainMs = beganMs + (tookMs > LONG_COUNT_MS ? 100 * tookMs : 0);
    }
    const used = this.#prepare('PRAGMA page_count').get()!['page_count'] as number;
    // Free pages are reused before the file grows.
    const free = this.#prepare('PRAGMA freelist_count').get()!['freelist_count'] as number;
    const size = this.#prepare('PRAGMA page_size').get()!['page_size'] as number;
    return { turns: this.#turns, bytes: (used - free) * size, evicted: 0, evictedLive: 0 };
  }

  close(): void {
    this.#statements.clear();
    this.#db.close();
  }

  #transaction(write: () => void): void {
    // SQLite goes on writing to a file that has no name any more.
    if (fileAt(this.place) !== this.#file)
      throw new Error(`${this.place} was removed or replaced while the router runs: restart the router`);
    this.#db.exec('BEGIN IMMEDIATE');
    try {
      write();
      this.#db.exec('COMMIT');
    } catch (error) {
      // With a full disk SQLite has rolled it back.
      if (this.#db.isTransaction) this.#db.exec('ROLLBACK');
      throw error;
    }
  }

  #put(turn: Turn): void {
    const {
      id,
      session,
      tenant,
      group,
      parent,
      startedAtMs,
      ids,
      logprobs,
      mask,
      request,
      answer,
      topTokens,
      ...details
    } = turn;
    const first = 'SELECT 1 FROM turns WHERE session = ? AND tenant = ? AND is_first = 1 AND id <> ? LIMIT 1';
    const isFirst = this.#prepare(first).get(session, tenant, id) === undefined ? 1 : 0;
    this.#prepare('INSERT OR REPLACE INTO turns VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)').run(
      id,
      session,
      tenant,
      group,
      parent,
      startedAtMs,
      isFirst,
      ids.length,
      JSON.stringify(details satisfies Details),
      ids,
      logprobs,
      mask,
      request,
      answer,
      topTokens ?? null,
    );
    this.#putVersions(id, turn.versions);
  }

  #putVersions(id: string, versions: readonly VersionSpan[]): void {
    const span = this.#prepare('INSERT OR IGNORE INTO versions VALUES (?, ?)');
    for (const { version } of versions) if (version !== null) span.run(id, version);
  }

  #prepare(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (statement === undefined) this.#statements.set(sql, (statement = this.#db.prepare(sql)));
    return statement;
  }
}

/** Which file has this name; null: none. */
const fileAt = (path: string): bigint | null => statSync(path, { bigint: true, throwIfNoEntry: false })?.ino ?? null;

/** SQLite's messages name no file. */
function opened(place: string, isReader: boolean): { db: DatabaseSync; version: number } {
  try {
    const db = new DatabaseSync(place, { readOnly: isReader, timeout: isReader ? READ_WAIT_MS : WRITE_WAIT_MS });
    const row = db.prepare('PRAGMA user_version').get() as { user_version: number };
    return { db, version: row.user_version };
  } catch (error) {
    const why = isFull(place) ? ' (no space is left on the disk, and SQLite needs some to open the file)' : '';
    throw new Error(`${place}: ${(error as Error).message}${why}`, { cause: error });
  }
}

/** Whether the disk has no space for a file's content, or for another file. SQLite only says that it can't open the file. */
function isFull(place: string): boolean {
  try {
    const { bavail, bsize, files, ffree } = statfsSync(dirname(place));
    return bavail * bsize < MIN_FREE_BYTES || (files > 0 && ffree < MIN_FREE_FILES);
  } catch {
    return false;
  }
}

/** A conjunction of the conditions that have a value. */
function allOf() {
  const where = ['1'];
  const values: Value[] = [];
  const add = (condition: string, value: Value | undefined): void => {
    if (value === undefined) return;
    where.push(condition);
    values.push(value);
  };
  return { where, values, add };
}

function conditions({ session, tenant, group, sinceMs, version }: TurnFilter) {
  const all = allOf();
  const { add } = all;
  add('t.session = ?', session);
  add('t.tenant = ?', tenant);
  add('t.grp = ?', group);
  add('t.started_at_ms >= ?', sinceMs);
  add('EXISTS (SELECT 1 FROM versions v WHERE v.turn = t.id AND v.version = ?)', version);
  return all;
}

function outcomeConditions({ finished, minReward, maxReward, label }: OutcomeQuery) {
  const all = allOf();
  const { where, add } = all;
  if (finished !== undefined) where.push(`o.session IS ${finished ? 'NOT ' : ''}NULL`);
  add('o.reward >= ?', minReward);
  add('o.reward <= ?', maxReward);
  const has = 'EXISTS (SELECT 1 FROM json_each(o.labels) l WHERE l.value = ?)';
  add(`CASE WHEN json_valid(o.labels) THEN ${has} ELSE 0 END`, label);
  return all;
}

/** A damaged one is none: lists have the session all the same. */
function outcomeOfRow(row: Row): SessionOutcome | null {
  if (row['finished_at_ms'] === null) return null;
  try {
    return {
      finishedAtMs: row['finished_at_ms'] as number,
      reward: row['reward'] as number | null,
      labels: JSON.parse(row['labels'] as string) as string[],
    };
  } catch {
    return null;
  }
}

const keysOfRow = (row: Row) => ({
  id: row['id'] as string,
  session: row['session'] as string,
  tenant: row['tenant'] as string,
  group: row['grp'] as string,
  parent: row['parent'] as string | null,
  startedAtMs: row['started_at_ms'] as number,
});

const outlineOfRow = (row: Row): TurnOutline =>
  readRecord(`turn ${row['id'] as string}`, () => ({
    ...asNow(JSON.parse(row['details'] as string) as Details),
    ...keysOfRow(row),
    tokens: row['tokens'] as number,
  }));

/** SQLite returns each value with memory of its own, so it is aligned. */
const bufferOf = (bytes: unknown): ArrayBuffer => new Uint8Array(bytes as Uint8Array).buffer;

function turnOf(row: Row): Turn {
  const { tokens: _, ...outline } = outlineOfRow(row);
  return readRecord(`turn ${outline.id}`, () => ({
    ...outline,
    ids: new Int32Array(bufferOf(row['ids'])),
    logprobs: new Float64Array(bufferOf(row['logprobs'])),
    mask: row['mask'] as Uint8Array,
    request: row['request'] as Uint8Array | null,
    answer: row['answer'] as Uint8Array | null,
    ...(row['top_tokens'] instanceof Uint8Array ? { topTokens: row['top_tokens'] } : {}),
  }));
}
