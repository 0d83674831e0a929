/** What makes data of doubtful use; `docs/guides/feed.md` says what each means. */
export const memberFlags = [
  'not_exact',
  'unknown_logprobs',
  'unknown_versions',
  'ambiguous',
  'drift',
  'resumed',
  'truncated',
] as const;
export type MemberFlag = (typeof memberFlags)[number];

/** Why a member, or a whole group, is not delivered. */
export const dropReasons = [
  'incomplete',
  'flagged',
  'length',
  'stale',
  'constant_reward',
  'deadline',
  'late',
  'cancelled',
  'failed',
] as const;
export type DropReason = (typeof dropReasons)[number];

/** The options of the plugin `feed`: `tap/feed/options.ts` describes them. */
export interface FeedOptions {
  readonly name: string;
  readonly groupSize: number | null;
  readonly first: number | null;
  readonly deadlineSecs: number;
  readonly rest: 'cancel' | 'keep';
  readonly needsReward: boolean;
  readonly minMembers: number | null;
  readonly dropConstantReward: boolean;
  readonly maxLag: number | null;
  readonly dropFlags: readonly MemberFlag[];
  readonly maxTokens: number | null;
  readonly stepGroups: number | null;
  readonly maxPendingGroups: number | null;
  readonly whenFull: 'refuse' | 'hold';
  readonly leaseSecs: number;
}

/** Members of a group at most: its record is written with each change. */
export const MAX_GROUP_SIZE = 1_024;

/** Groups of all tenants that may be pending where the options have no limit: what a few hundred megabytes of memory hold. */
export const MAX_PENDING = 100_000;

/**
 * How many groups of a tenant may be pending: with this limit a group that begins now is trained on within `maxLag` steps. null: the options
 * have none.
 */
export const chosenLimit = ({ maxPendingGroups, maxLag, stepGroups }: FeedOptions): number | null =>
  maxPendingGroups ?? (maxLag === null || stepGroups === null ? null : (maxLag + 1) * stepGroups);

/** A request's place in the feed, as its headers tell. */
export interface FeedEntry {
  readonly tenant: string;
  /** '': the request names none in its headers or path. */
  readonly session: string;
  /** '': none; the session may still belong to a declared group. */
  readonly group: string;
  /** null: the request does not say it. */
  readonly size: number | null;
  /** It has waited for room. */
  readonly isAgain: boolean;
}

/** Whether a request may pass. */
export type FeedVerdict =
  /** `isPast`: the group of its session is over. */
  | { readonly kind: 'admitted'; readonly isPast: boolean }
  /** The feed is full: no new group may begin. */
  | { readonly kind: 'full'; readonly message: string }
  /** Its group does not wait for this session any more. */
  | { readonly kind: 'cancelled'; readonly message: string }
  | { readonly kind: 'invalid'; readonly message: string };

/** Numbers that a client gives a session; `null` and what is left out stay as they were. */
export interface RewardChange {
  readonly reward?: number | null | undefined;
  readonly rewards?: Readonly<Record<string, number>> | undefined;
}
