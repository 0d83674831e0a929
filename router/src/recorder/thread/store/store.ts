import type { OutcomeChange, OutcomeQuery, SessionOutcome } from '../../shared/outcome.ts';
import type { RecordTables } from './records.ts';
import type { RoutedExperts, SessionName, Turn, TurnAmendment } from '../../shared/turn.ts';

/** A turn without large fields, for listings, figures, and the tree of a session's turns. */
export interface TurnOutline extends Omit<Turn, 'ids' | 'logprobs' | 'mask' | 'request' | 'answer' | 'topTokens'> {
  /** The number of tokens that it adds. */
  readonly tokens: number;
}

/** Fields that turns of earlier releases lack, or have as -1 and '' where they are not known. */
type EarlierFields = Pick<TurnOutline, 'promptTokens' | 'outputTokens' | 'cachedTokens' | 'finishReason'> &
  Partial<Pick<TurnOutline, 'unknownLogprobs'>>;

/** The fields of a stored turn as they are now. */
export function asNow<T extends EarlierFields>(stored: T): T & Pick<TurnOutline, 'unknownLogprobs'> {
  const { promptTokens, outputTokens, cachedTokens, finishReason, unknownLogprobs = null } = stored;
  return {
    ...stored,
    unknownLogprobs,
    promptTokens: countOf(promptTokens),
    outputTokens: countOf(outputTokens),
    cachedTokens: countOf(cachedTokens),
    finishReason: finishReason || null,
  };
}

const countOf = (stored: number | null): number | null => (stored === null || stored < 0 ? null : stored);

/** A session in a listing. */
export interface SessionHead {
  readonly session: string;
  readonly tenant: string;
  /** Its first stored turn, by which pages are sorted. */
  readonly firstTurn: string;
  /** null: its client has not ended it. */
  readonly outcome: SessionOutcome | null;
}

/** Sessions with an outcome and a turn that match; fields that are left out, or undefined, do not filter. */
export interface SessionQuery extends OutcomeQuery {
  readonly session?: string | undefined;
  readonly group?: string | undefined;
  readonly tenant?: string | undefined;
  /** Sampled, at least in part, by this version of the weights; what has an unknown version is not found by any. */
  readonly version?: string | undefined;
  /** Unix ms. */
  readonly sinceMs?: number | undefined;
  /** By the first turns of sessions; left out: oldest first. */
  readonly order?: 'oldest' | 'newest' | undefined;
  /** Only sessions that come after the one with this first turn, in that order. */
  readonly after?: string | undefined;
  readonly limit: number;
}

/** Which turns a session needs one of. */
export type TurnFilter = Pick<SessionQuery, 'session' | 'group' | 'tenant' | 'version' | 'sinceMs'>;

/** Turns, the newest first; fields that are left out, or undefined, do not filter. */
export interface NewestQuery {
  readonly session?: string | undefined;
  readonly tenant?: string | undefined;
  /** Turns before this id only. */
  readonly before?: string | undefined;
  readonly limit: number;
}

export interface StoreCounts {
  readonly turns: number;
  /** If the store knows it without a search; -1: not known. */
  readonly bytes: number;
  /** Evicted turns. */
  readonly evicted: number;
  /** Evicted sessions that were not over: without an end, and with a turn within `SESSION_IDLE_MS`. */
  readonly evictedLive: number;
}

/** A promise if the store is asynchronous; callers await it. */
export type Soon<T> = T | Promise<T>;

/** The store takes nothing now: the error says nothing about what was to be stored. */
export class StoreAway extends Error {}

/** SQLite's codes for a file that can't be used now: busy, locked, I/O error, full. A small turn may fit on a disk where a large one does not. */
const OF_FILE: ReadonlySet<number> = new Set([5, 6, 10, 13]);

/** Whether a call failed because of the store, and not because of what was read or written. */
export const isOfStore = (error: unknown): boolean =>
  error instanceof StoreAway || OF_FILE.has(((error as { errcode?: number }).errcode ?? 0) & 0xff);

/** A turn that is stored and can't be read: all that is known of it. */
export interface DamagedTurn extends Pick<Turn, 'id' | 'startedAtMs'> {}

/** A record of the store that can't be read. Others can be. */
export class DamagedRecord extends Error {
  constructor(what: string, cause: unknown) {
    super(`the record of ${what} is damaged: ${(cause as Error).message}`, { cause });
  }
}

/** @throws DamagedRecord */
export function readRecord<T>(what: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new DamagedRecord(what, error);
  }
}

/** @param onDamaged is called for records that can't be read; left out: the first one is thrown */
export function readRecords<R, T>(
  records: readonly R[],
  read: (record: R) => T,
  onDamaged: ((record: R) => void) | undefined,
): T[] {
  return records.flatMap((record) => {
    try {
      return [read(record)];
    } catch (error) {
      if (onDamaged === undefined || !(error instanceof DamagedRecord)) throw error;
      onDamaged(record);
      return [];
    }
  });
}

/** Stores turns, and lists them by session without reading large fields. It lives on the recorder thread, so it may block. */
export interface TrajectoryStore {
  /** For logs: where the turns are, without a password. */
  readonly place: string;
  readonly records: RecordTables;
  /** Called for each evicted session, with its files. */
  onEvicted?: (session: string, tenant: string, experts: readonly RoutedExperts[]) => void;
  /** Takes all of them or throws. */
  put(turns: readonly Turn[]): Soon<void>;
  /** A turn that is not there stays so. */
  amend(amendments: readonly TurnAmendment[]): Soon<void>;
  /** @param needsBodies false: the request and the response of a turn whose tokens are known may be left out */
  get(id: string, needsBodies?: boolean): Soon<Turn | null>;
  /** In the order of their first turns, or in the reverse one. */
  sessions(query: SessionQuery): Soon<readonly SessionHead[]>;
  /** Stores the outcome of a session with its turns. @returns how many sessions have that name */
  finish(name: SessionName, change: OutcomeChange, nowMs: number): Soon<number>;
  /** @param onDamaged is called for turns that can't be read, which count for `limit`; left out: the first one is thrown */
  newest(query: NewestQuery, onDamaged?: (turn: DamagedTurn) => void): Soon<readonly TurnOutline[]>;
  /** @returns how many turns were removed */
  removeSession(session: string, tenant?: string): Soon<number>;
  counts(): Soon<StoreCounts>;
  close(): Soon<void>;
}

/** Whether a turn matches a query, except for pages and limits. */
export function wants(
  query: TurnFilter,
  turn: Pick<Turn, 'session' | 'tenant' | 'group' | 'startedAtMs' | 'versions'>,
): boolean {
  return (
    (query.session === undefined || query.session === turn.session) &&
    (query.tenant === undefined || query.tenant === turn.tenant) &&
    (query.group === undefined || query.group === turn.group) &&
    (query.sinceMs === undefined || turn.startedAtMs >= query.sinceMs) &&
    (query.version === undefined || turn.versions.some(({ version }) => version === query.version))
  );
}

/** All turns of a session, sorted by id; without a tenant those of all tenants. @param onDamaged as that of `newest` */
export async function turnsOf(
  store: Pick<TrajectoryStore, 'newest'>,
  session: string,
  tenant?: string,
  onDamaged?: (turn: DamagedTurn) => void,
): Promise<readonly TurnOutline[]> {
  return (await store.newest({ session, tenant, limit: Number.MAX_SAFE_INTEGER }, onDamaged)).toReversed();
}

export function outlineOf(turn: Turn): TurnOutline {
  const { ids, logprobs: _, mask: __, request: ___, answer: ____, topTokens: _____, ...rest } = turn;
  return { ...rest, tokens: ids.length };
}

/** The files that a turn has beside the store. */
export const filesOf = ({ experts, indexer }: Pick<Turn, 'experts' | 'indexer'>): RoutedExperts[] =>
  [experts, indexer ?? null].filter((file) => file !== null);

/** The estimated size of a turn, in memory and in stores. */
export function turnBytes({ ids, logprobs, mask, request, answer, topTokens }: Turn): number {
  const text = (request?.length ?? 0) + (answer?.length ?? 0) + (topTokens?.length ?? 0);
  return 600 + ids.byteLength + logprobs.byteLength + mask.byteLength + text;
}
