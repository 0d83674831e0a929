import type { RedisArgument } from '@redis/client';
import { type OutcomeChange, type SessionOutcome, outcomeAfter, wantsOutcome } from '../../shared/outcome.ts';
import type { SessionName, Turn, TurnAmendment } from '../../shared/turn.ts';
import { timeIn } from '../capture/turn-id.ts';
import { RedisRecords } from './redis-records.ts';
import { type RedisLink, connectRedis, withoutPassword } from './redis-client.ts';
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
  outlineOf,
  readRecord,
  readRecords,
  wants,
} from './store.ts';
import { tenantKey } from '../../../classify/tenant-key.ts';

type Command = readonly RedisArgument[];

/** How many ids are read with one command. */
const PAGE = 256;

/** Sorted sets with one score for all are sorted by text: ids are ordered by time as text. */
const TURNS = 'turnout:turns';
/** Members: the id of a session's first turn, a line feed, the session's key. */
const SESSIONS = 'turnout:sessions';
/** By session key the id of its first turn. */
const FIRST = 'turnout:first';
/** By session key how the session ended, as JSON. */
const OUTCOMES = 'turnout:outcomes';
const turnKey = (id: string): string => `turnout:turn:${id}`;
const sessionTurns = (key: string): string => `turnout:session:${key}`;
const tenantsOf = (session: string): string => `turnout:tenants:${session}`;

const keyOf = ({ tenant, session }: { tenant: string; session: string }): string => tenantKey(tenant, session);

function partsOf(key: string): { tenant: string; session: string } {
  const from = key.indexOf(':') + 1;
  const to = from + Number(key.slice(0, from - 1));
  return { tenant: key.slice(from, to), session: key.slice(to) };
}

/** Turns in a Redis or Valkey server, which several routers may share. A turn is a hash: outline, arrays, bodies. */
export class RedisStore implements TrajectoryStore {
  readonly place: string;
  readonly records: RedisRecords;
  readonly #link: RedisLink;

  constructor(link: RedisLink, place: string) {
    this.#link = link;
    this.records = new RedisRecords(link);
    this.place = place;
  }

  static async open(url: string, isReader: boolean): Promise<RedisStore> {
    return new RedisStore(await connectRedis(url, isReader), withoutPassword(url));
  }

  async put(turns: readonly Turn[]): Promise<void> {
    const commands: Command[] = [];
    const firsts = new Map<string, string>();
    for (const turn of turns) if (!firsts.has(keyOf(turn))) firsts.set(keyOf(turn), turn.id);
    const list = async ([key, id]: [string, string]): Promise<void> => {
      // The first of all routers decides. It is listed with every put, so a router that died in between does no harm.
      const asked = [this.#link.send(['HSETNX', FIRST, key, id]), this.#link.send(['HGET', FIRST, key])];
      const first = text((await Promise.all(asked))[1]);
      const { tenant, session } = partsOf(key);
      commands.push(['ZADD', SESSIONS, '0', `${first}\n${key}`], ['SADD', tenantsOf(session), tenant]);
    };
    await Promise.all(Array.from(firsts, list));
    for (const turn of turns) {
      const { id, request, answer, topTokens } = turn;
      commands.push(
        ['DEL', turnKey(id)],
        ['HSET', turnKey(id), 'o', JSON.stringify(outlineOf(turn)), 'd', packArrays(turn)],
        ['ZADD', TURNS, '0', id],
        ['ZADD', sessionTurns(keyOf(turn)), '0', id],
      );
      if (request !== null) commands.push(['HSET', turnKey(id), 'q', Buffer.from(request)]);
      if (answer !== null) commands.push(['HSET', turnKey(id), 'a', Buffer.from(answer)]);
      if (topTokens !== undefined) commands.push(['HSET', turnKey(id), 't', Buffer.from(topTokens)]);
    }
    await this.#link.transaction(commands);
  }

  async amend(amendments: readonly TurnAmendment[]): Promise<void> {
    const rewritten = async ({ id, versions }: TurnAmendment): Promise<Command | null> => {
      const outline = await this.#link.send(['HGET', turnKey(id), 'o']);
      if (!Buffer.isBuffer(outline)) return null;
      const [stored] = readRecords(
        [outline],
        (json) => outlineOfJson(id, json),
        () => {},
      );
      if (stored === undefined) return null;
      return ['HSET', turnKey(id), 'o', JSON.stringify({ ...stored, versions })];
    };
    const commands = (await Promise.all(amendments.map(rewritten))).filter((command) => command !== null);
    if (commands.length > 0) await this.#link.transaction(commands);
  }

  async get(id: string): Promise<Turn | null> {
    const fields = await this.#link.send(['HMGET', turnKey(id), 'o', 'd', 'q', 'a', 't']);
    const [outline, arrays, request, answer, topTokens] = fields as (Buffer | null)[];
    if (outline == null || arrays == null) return null;
    const { tokens, ...rest } = outlineOfJson(id, outline);
    const unpacked = readRecord(`turn ${id}`, () => unpackArrays(arrays, tokens));
    const turn = { ...rest, ...unpacked, request: request ?? null, answer: answer ?? null };
    return topTokens == null ? turn : { ...turn, topTokens };
  }

  async sessions(query: SessionQuery): Promise<readonly SessionHead[]> {
    const found: SessionHead[] = [];
    for await (const head of this.#heads(query)) {
      const isOther = query.tenant !== undefined && query.tenant !== head.tenant;
      if (isOther || !wantsOutcome(query, head.outcome) || !(await this.#hasTurn(head, query))) continue;
      found.push(head);
      if (found.length >= query.limit) break;
    }
    return found;
  }

  async finish({ session, tenant }: SessionName, change: OutcomeChange, nowMs: number): Promise<number> {
    const heads = await this.#named({ session, tenant });
    const fields = heads.flatMap((head) => [keyOf(head), JSON.stringify(outcomeAfter(head.outcome, change, nowMs))]);
    if (fields.length > 0) await this.#link.send(['HSET', OUTCOMES, ...fields]);
    return heads.length;
  }

  async newest(
    { session, tenant, before, limit }: NewestQuery,
    onDamaged?: (turn: DamagedTurn) => void,
  ): Promise<readonly TurnOutline[]> {
    const keys =
      session === undefined
        ? [TURNS]
        : (tenant === undefined ? await this.#tenants(session) : [tenant]).map((each) =>
            sessionTurns(keyOf({ session, tenant: each })),
          );
    const ids: string[] = [];
    for (const key of keys) {
      const from = before === undefined ? '+' : `(${before}`;
      ids.push(...(await this.#rangeDown(key, from, limit)));
    }
    const newest = ids.sort((a, b) => (a < b ? 1 : -1)).slice(0, limit);
    const outlines: TurnOutline[] = [];
    for (let at = 0; at < newest.length; at += PAGE)
      outlines.push(...(await this.#outlines(newest.slice(at, at + PAGE), onDamaged)));
    return outlines;
  }

  async removeSession(session: string, tenant?: string): Promise<number> {
    let removed = 0;
    for (const each of tenant === undefined ? await this.#tenants(session) : [tenant]) {
      const key = keyOf({ tenant: each, session });
      const first = text(await this.#link.send(['HGET', FIRST, key]));
      const ids = await this.#range(sessionTurns(key), '-', -1);
      removed += ids.length;
      if (ids.length === 0) continue;
      await this.#link.transaction([
        ['DEL', sessionTurns(key), ...ids.map(turnKey)],
        ['ZREM', TURNS, ...ids],
        ['ZREM', SESSIONS, `${first}\n${key}`],
        ['HDEL', FIRST, key],
        ['HDEL', OUTCOMES, key],
        ['SREM', tenantsOf(session), each],
      ]);
    }
    return removed;
  }

  async counts(): Promise<StoreCounts> {
    return { turns: Number(await this.#link.send(['ZCARD', TURNS])), bytes: -1, evicted: 0, evictedLive: 0 };
  }

  close(): void {
    this.#link.close();
  }

  async #outlines(ids: readonly string[], onDamaged?: (turn: DamagedTurn) => void): Promise<TurnOutline[]> {
    const rows = await Promise.all(
      ids.map(async (id) => ({ id, outline: await this.#link.send(['HGET', turnKey(id), 'o']) })),
    );
    return readRecords(
      rows.filter(({ outline }) => Buffer.isBuffer(outline)),
      ({ id, outline }) => outlineOfJson(id, outline as Buffer),
      onDamaged && (({ id }) => onDamaged({ id, startedAtMs: timeIn(id) })),
    );
  }

  /** Whether the session has a turn that is wanted. */
  async #hasTurn(head: SessionHead, query: TurnFilter): Promise<boolean> {
    for (let from = '-'; ;) {
      const ids = await this.#range(sessionTurns(keyOf(head)), from, PAGE);
      const damaged: DamagedTurn[] = [];
      const outlines = await this.#outlines(ids, (turn) => damaged.push(turn));
      const unknown = { ...head, group: '', versions: [] };
      if ([...outlines, ...damaged.map((turn) => ({ ...unknown, ...turn }))].some((turn) => wants(query, turn)))
        return true;
      if (ids.length < PAGE) return false;
      from = `(${ids.at(-1)}`;
    }
  }

  /** All sessions after one, or those with a name, in the order of the query. */
  async *#heads({ session, tenant, after, order }: SessionQuery): AsyncGenerator<SessionHead, undefined> {
    const isNewestFirst = order === 'newest';
    if (session !== undefined) {
      const named = await this.#named({ session, tenant });
      const isAfter = ({ firstTurn }: SessionHead): boolean =>
        after === undefined || (isNewestFirst ? firstTurn < after : firstTurn > after);
      yield* (isNewestFirst ? named.toReversed() : named).filter(isAfter);
      return;
    }
    // Keys begin with a digit, all of which sort before the colon.
    let from = isNewestFirst ? '+' : '-';
    if (after !== undefined) from = isNewestFirst ? `(${after}\n` : `(${after}\n:`;
    for (;;) {
      const members = await (isNewestFirst ? this.#rangeDown(SESSIONS, from, PAGE) : this.#range(SESSIONS, from, PAGE));
      const keys = members.map((member) => member.slice(member.indexOf('\n') + 1));
      const outcomes = await this.#outcomes(keys);
      for (const [i, member] of members.entries()) {
        yield { ...partsOf(keys[i]!), firstTurn: member.slice(0, member.indexOf('\n')), outcome: outcomes[i]! };
      }
      if (members.length < PAGE) return;
      from = `(${members.at(-1)}`;
    }
  }

  async #named({ session, tenant }: SessionName): Promise<SessionHead[]> {
    const tenants = tenant === undefined ? await this.#tenants(session) : [tenant];
    const keys = tenants.map((each) => keyOf({ session, tenant: each }));
    if (keys.length === 0) return [];
    const firsts = (await this.#link.send(['HMGET', FIRST, ...keys])) as (Buffer | null)[];
    const outcomes = await this.#outcomes(keys);
    const heads = tenants.map((each, i) => {
      return { session, tenant: each, firstTurn: text(firsts[i]), outcome: outcomes[i]! };
    });
    return heads.filter((_, i) => firsts[i] !== null).toSorted((a, b) => (a.firstTurn < b.firstTurn ? -1 : 1));
  }

  /** @param keys of sessions */
  async #outcomes(keys: readonly string[]): Promise<(SessionOutcome | null)[]> {
    if (keys.length === 0) return [];
    const found = (await this.#link.send(['HMGET', OUTCOMES, ...keys])) as (Buffer | null)[];
    return found.map((json) => (json === null ? null : outcomeOfJson(text(json))));
  }

  async #tenants(session: string): Promise<string[]> {
    return ((await this.#link.send(['SMEMBERS', tenantsOf(session)])) as Buffer[]).map(text);
  }

  async #range(key: string, from: string, limit: number): Promise<string[]> {
    const found = await this.#link.send(['ZRANGEBYLEX', key, from, '+', 'LIMIT', '0', String(limit)]);
    return (found as Buffer[]).map(text);
  }

  async #rangeDown(key: string, from: string, limit: number): Promise<string[]> {
    const found = await this.#link.send(['ZREVRANGEBYLEX', key, from, '-', 'LIMIT', '0', String(limit)]);
    return (found as Buffer[]).map(text);
  }
}

const outlineOfJson = (id: string, json: Buffer): TurnOutline =>
  readRecord(`turn ${id}`, () => asNow(JSON.parse(json.toString()) as TurnOutline));

/** A damaged one is none: lists have the session all the same. */
function outcomeOfJson(json: string): SessionOutcome | null {
  try {
    return JSON.parse(json) as SessionOutcome;
  } catch {
    return null;
  }
}

const text = (value: unknown): string => (Buffer.isBuffer(value) ? value.toString() : '');

/** Logprobs first, because they have the largest alignment. */
const packArrays = ({ ids, logprobs, mask }: Turn): Buffer => Buffer.concat([logprobs, ids, mask].map(bytesOf));

const bytesOf = (array: ArrayBufferView): Uint8Array =>
  new Uint8Array(array.buffer, array.byteOffset, array.byteLength);

function unpackArrays(packed: Buffer, tokens: number): Pick<Turn, 'ids' | 'logprobs' | 'mask'> {
  const { buffer } = new Uint8Array(packed);
  return {
    logprobs: new Float64Array(buffer, 0, tokens),
    ids: new Int32Array(buffer, 8 * tokens, tokens),
    mask: new Uint8Array(buffer, 12 * tokens, tokens),
  };
}
