/** What operators see of the groups that wait for a trainer (plugin `feed`). */
export interface TrainerFeed {
  /** As of less than a second ago. */
  stats(): FeedStats;
  /** The newest pending groups: keys, and each `GroupRow` as JSON. */
  rows(): Promise<readonly (readonly [key: string, json: string])[]>;
}

/** A pending group, as `GET /groups` lists it. Times are Unix ms. */
export interface GroupRow {
  readonly id: number;
  readonly group: string;
  readonly tenant: string;
  readonly state: 'open' | 'judged' | 'ready' | 'leased';
  /** Why it does not wait any longer; null: it waits. */
  readonly because: string | null;
  readonly size: number;
  readonly began_at_ms: number;
  readonly ready_at_ms: number | null;
  /** null: it has none. */
  readonly deadline_at_ms: number | null;
  readonly deliveries: number;
  /** The name that its consumer gave; null: no consumer has it. */
  readonly leased_to: string | null;
  readonly leased_until_ms: number | null;
  /** How many of its sessions have not begun. */
  readonly not_begun: number;
  readonly members: readonly {
    readonly session: string;
    readonly state: string;
    readonly started_at_ms: number;
    readonly reward: number | null;
    readonly rewards: Readonly<Record<string, number>>;
    /** null: the group does not wait for it. */
    readonly waits_for: 'end of session' | 'reward' | null;
    /** Why it is not delivered; null: it is, as far as is known. */
    readonly dropped: string | null;
  }[];
}

/** The state of the feed, as metrics, `GET /feed/stats` and the dashboard show it. */
export interface FeedStats {
  /** Groups and members that came, ever. */
  readonly groups: number;
  readonly members: number;
  readonly open: number;
  readonly ready: number;
  readonly leased: number;
  readonly acked: number;
  readonly ackedMembers: number;
  /** Members of groups that are open, ready or leased. */
  readonly pendingMembers: number;
  /** By reason. */
  readonly droppedGroups: Readonly<Record<string, number>>;
  readonly droppedMembers: Readonly<Record<string, number>>;
  readonly deliveries: number;
  readonly expiredLeases: number;
  readonly refused: number;
  readonly waitingConsumers: number;
  /** How many groups of a tenant may be pending; null: any number. */
  readonly maxPending: number | null;
  /** null: no version is known yet. */
  readonly version: string | null;
  /** Groups that were taken since `version` is the newest one. */
  readonly takenThisStep: number;
  /** How many more groups the step wants; null: `stepGroups` is not set. */
  readonly wanted: number | null;
}
