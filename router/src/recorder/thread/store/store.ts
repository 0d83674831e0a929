import type { OutcomeChange, OutcomeQuery, SessionOutcome } from '../../shared/outcome.ts';
import type { RoutedExperts, SessionName, Turn, TurnQuery, TurnStore } from '../../shared/turn.ts';

/** A turn without what is large: enough for listings, figures, and for the tree that the turns of a session are. */
export interface TurnOutline extends Omit<Turn, 'ids' | 'logprobs' | 'mask' | 'request' | 'answer' | 'topTokens'> {
  /** How many it adds. */
  readonly tokens: number;
}

/** What turns lack that were stored by earlier releases. */
export const LATER_FIELDS = { unknownLogprobs: null } as const satisfies Partial<TurnOutline>;

/** The turns of one session key, as a listing knows them. */
export interface SessionHead {
  readonly session: string;
  readonly tenant: string;
  /** The first of its turns that was stored: what pages go by. */
  readonly firstTurn: string;
  /** null: its client has not said that it is over. */
  readonly outcome: SessionOutcome | null;
}

/** Sessions that ended in some way, and have a turn that is wanted. */
export interface SessionQuery extends TurnQuery, OutcomeQuery {}

/** Turns, the newest first; fields that are left out limit nothing. */
export interface NewestQuery {
  readonly session?: string;
  readonly tenant?: string;
  /** Turns before this id only. */
  readonly before?: string;
  readonly limit: number;
}

export interface StoreCounts {
  readonly turns: number;
  /** As far as the store can tell, without asking far; -1 where it can't. */
  readonly bytes: number;
  /** Turns that had to make room for newer ones. */
  readonly evicted: number;
  /** Sessions among them that were not over: without an end, and with a turn within `SESSION_IDLE_MS`. */
  readonly evictedLive: number;
}

/** Whatever a store can't answer at once it answers with a promise. */
export type Soon<T> = T | Promise<T>;

/** A store of turns that can also be listed by session without reading what is large. */
export interface TrajectoryStore extends TurnStore {
  /** For people: where it keeps them. Shows no password. */
  readonly place: string;
  /** Turns are put one by one, at once; other stores get batches. */
  readonly isInMemory: boolean;
  /** Told of each session that has to make room for newer ones, and of its files. */
  onEvicted?: (session: string, tenant: string, experts: readonly RoutedExperts[]) => void;
  /** Sessions that have a turn which the query wants, in the order of their first turns; `after` is a first turn. */
  sessions(query: SessionQuery): Soon<readonly SessionHead[]>;
  /** Keeps how a session ended, with its turns and as long as they. @returns how many sessions have that name */
  finish(name: SessionName, change: OutcomeChange, nowMs: number): Soon<number>;
  /** All turns of a session, in the order of their ids; without a tenant those of all tenants. */
  outlines(session: string, tenant?: string): Soon<readonly TurnOutline[]>;
  /** The newest turns first: of a session, or of all. */
  newest(query: NewestQuery): Soon<readonly TurnOutline[]>;
  counts(): Soon<StoreCounts>;
}

/** Whether a query wants a turn; pages and limits aside. */
export function wants(
  query: Omit<TurnQuery, 'limit' | 'after'>,
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

export function outlineOf(turn: Turn): TurnOutline {
  const { ids, logprobs: _, mask: __, request: ___, answer: ____, topTokens: _____, ...rest } = turn;
  return { ...rest, tokens: ids.length };
}

/** The files that a turn has beside the store. */
export const filesOf = ({ experts, indexer }: Pick<Turn, 'experts' | 'indexer'>): RoutedExperts[] =>
  [experts, indexer ?? null].filter((file) => file !== null);

/** About what a turn takes, in memory and elsewhere. */
export function turnBytes({ ids, logprobs, mask, request, answer, topTokens }: Turn): number {
  const text = (request?.length ?? 0) + (answer?.length ?? 0) + (topTokens?.length ?? 0);
  return 600 + ids.byteLength + logprobs.byteLength + mask.byteLength + text;
}
