import type { RecordChange, RecordTables } from './records.ts';
import type { RedisLink } from './redis-client.ts';

const hashOf = (table: string): string => `turnout:records:${table}`;

/** A field has the time at which it was put (Unix ms), a line feed, and the value. */
const valueOf = (field: unknown): string => {
  const text = String(field);
  return text.slice(text.indexOf('\n') + 1);
};

/** Records in a Redis or Valkey server: a hash for each table. */
export class RedisRecords implements RecordTables {
  readonly isShared = true;
  readonly #link: RedisLink;

  constructor(link: RedisLink) {
    this.#link = link;
  }

  async all(table: string) {
    const fields = await this.#fields(table);
    return fields.map(([key, field]) => [key, valueOf(field)] as const);
  }

  async get(table: string, key: string): Promise<string | null> {
    const field = await this.#link.send(['HGET', hashOf(table), key]);
    return field === null ? null : valueOf(field);
  }

  async write(changes: readonly RecordChange[], nowMs: number): Promise<void> {
    if (changes.length === 0) return;
    await this.#link.transaction(
      changes.map(({ table, key, value }) =>
        value === null ? ['HDEL', hashOf(table), key] : ['HSET', hashOf(table), key, `${nowMs}\n${value}`],
      ),
    );
  }

  async prune(table: string, beforeMs: number): Promise<void> {
    const old = (await this.#fields(table)).filter(([, field]) => Number.parseInt(field) < beforeMs);
    if (old.length > 0) await this.#link.send(['HDEL', hashOf(table), ...old.map(([key]) => key)]);
  }

  async #fields(table: string): Promise<[key: string, field: string][]> {
    const found = (await this.#link.send(['HGETALL', hashOf(table)])) as unknown[];
    return Array.from({ length: found.length / 2 }, (_, i) => [String(found[2 * i]), String(found[2 * i + 1])]);
  }
}
