import type { BreakerState } from '../../fleet/breaker.ts';
import type { MoveReason, Why } from '../../fleet/session-move.ts';
import type { ExchangeRow } from '../../observe/exchange-rows.ts';
import type { historyFields } from '../../observe/history.ts';
import type { FeedStats, GroupRow } from '../../observe/trainer-feed.ts';
import type { WaitRow } from '../../observe/waits.ts';
import type { Reason, Role } from '../../fleet/worker.ts';
import type { Phase } from '../request-phase.ts';

/** The rows and events of `GET /dashboard/feed`; the page imports these types. Times are Unix ms. */

export interface WorkerRow {
  readonly url: string;
  readonly id: string;
  readonly role: Role;
  /** It gets new requests if there is no reason. */
  readonly reasons: readonly Reason[];
  readonly breaker: BreakerState;
  /** The problem of the last health check. */
  readonly problem: string | null;
  readonly stalled: boolean;
  readonly engine: string | null;
  readonly engine_version: string | null;
  readonly weight_version: string | null;
  /** null: not known. */
  readonly models: readonly string[] | null;
  readonly added_at: number;
  readonly in_flight: number;
  /** null: not known, because no policy reads the keys of requests. */
  readonly sessions: number | null;
  readonly connections: number;
  /** What the engine reports, for the requests of all its clients; null: not known. */
  readonly engine_requests: number | null;
  readonly engine_waiting: number | null;
  /** 0 to 1. */
  readonly kv_use: number | null;
  readonly kv_tokens: number | null;
  /** Totals since the router started, from which the page makes recent rates. */
  readonly responses: number;
  readonly failures: number;
  readonly prompt_tokens: number;
  /** null: no response reported any. */
  readonly cached_tokens: number | null;
  /** Prompt tokens of the responses that report cached tokens. */
  readonly cacheable_prompt_tokens: number;
  readonly output_tokens: number;
  /** Means of the last minute; null: nothing ended in it. */
  readonly first_token_secs: number | null;
  readonly token_gap_secs: number | null;
  readonly response_secs: number | null;
  /** Of a worker whose weights the router swaps. */
  readonly swap: WorkerSwap | null;
}

export interface WorkerSwap {
  readonly state: string;
  readonly snapshot: string | null;
  readonly target: string | null;
  readonly stage: string;
  readonly error: string | null;
}

export interface SessionRow {
  readonly session: string;
  readonly group: string;
  /** URL; null: its first request waits for a worker. */
  readonly worker: string | null;
  /** When it came there, and when its last request was placed or ended. */
  readonly since: number | null;
  readonly last: number | null;
  readonly turns: number;
  /** Requests at workers: those that wait for one are not counted. */
  readonly in_flight: number;
  readonly why: Why | null;
  readonly moves: number;
  readonly move: {
    readonly from: string;
    readonly reason: MoveReason;
    readonly text: string;
    readonly at: number;
  } | null;
  /** What its oldest request in flight waits for. */
  readonly phase: Phase | null;
  /** The reason for which it is queued or held, as `waitText` too, and since when. */
  readonly waits_for: string | null;
  readonly waits_text: string | null;
  readonly waits_since: number | null;
}

/** The weight swap of one engine; `seq` counts the swaps of its deployments. */
export interface SwapRow {
  readonly key: string;
  readonly deployments: readonly (string | null)[];
  readonly seq: number;
  readonly identity: string;
  readonly transition: string;
  readonly moved_by: string;
  readonly started_at: number;
  readonly ended_at: number | null;
  readonly engine: string;
  readonly stage: string;
  readonly error: string | null;
  readonly began_at: number | null;
  /** Ended stages, in order. */
  readonly phases_ms: Readonly<Record<string, number>>;
}

export type { GroupRow } from '../../observe/trainer-feed.ts';

export interface Rows {
  readonly workers: WorkerRow;
  readonly sessions: SessionRow;
  readonly swaps: SwapRow;
  readonly groups: GroupRow;
}
export type TableName = keyof Rows;

export interface Totals {
  /** null: not known, because no policy reads the keys of requests. */
  readonly sessions: number | null;
  /** Open sessions that have no row, because there are too many. */
  readonly unlisted_sessions: number;
  readonly moves: Readonly<Record<string, number>>;
  /** Requests in flight, by what they wait for. */
  readonly phases: Readonly<Partial<Record<Phase, number>>>;
  /** Requests that are queued or held, by reason. */
  readonly waits: readonly WaitRow[];
  /** Of the plugin `feed`; null: it is not loaded. */
  readonly feed: FeedStats | null;
}

export interface About {
  readonly version: string;
  readonly policies: readonly string[];
  readonly started_at: number;
  readonly swaps: boolean;
  /** Turns are recorded: `GET /trajectories`. */
  readonly captures: boolean;
}

/** In one point of the history, in this order. */
export type HistoryField = (typeof historyFields)[number];

/** A message of the feed. `reset` comes first and means that what the page has is old; a `tick` ends what belongs together. */
export type FeedEvent =
  | { readonly reset: About; readonly history_fields: readonly HistoryField[] }
  | {
      readonly [Table in TableName]: {
        readonly table: Table;
        readonly set: readonly Rows[Table][];
        readonly gone: readonly string[];
      };
    }[TableName]
  | {
      readonly tick: number;
      readonly at: number;
      readonly totals: Totals;
      readonly points: readonly (readonly (number | null)[])[];
      /** Rows of exchanges that ended since the last tick, and how many were left out. */
      readonly exchanges: readonly ExchangeRow[];
      readonly dropped: number;
    };
