import type { FeedEntry, FeedOptions, FeedVerdict, RewardChange } from '../../shared/feed.ts';
import type { FeedStats } from '../../../observe/trainer-feed.ts';
import type { ChatName, SessionName } from '../../shared/turn.ts';
import { ByteStreams } from '../export/byte-streams.ts';
import { inPieces, listJson } from '../json-parts.ts';
import type { TurnWriter } from '../store/writer.ts';
import type { AckResult, Take } from './deliveries.ts';
import type { GroupFailure } from './failures.ts';
import type { Feed, FeedEnd } from './feed.ts';
import { feedNow } from './feed-clock.ts';
import { IncompleteSessions } from './incomplete-sessions.ts';

export type FeedFormat = 'ndjson' | 'arrow';

export interface FeedTake extends Take {
  readonly format: FeedFormat;
}

export interface FeedStart {
  readonly options: FeedOptions;
  /** The name of this router among those that share the store. */
  readonly router: string;
  /** The thread was started again. */
  readonly isAgain: boolean;
}

export interface FeedClaims {
  readonly leases: readonly string[];
  readonly tenant: string | undefined;
  readonly act: 'ack' | 'nack' | 'renew';
  /** Of `renew`; null: as the plugin's option says. */
  readonly leaseSecs: number | null;
}

/** `code`: null where the reward was taken. */
export interface RewardResult {
  readonly code: 'bad_request' | 'session_not_found' | 'group_taken' | null;
  readonly message: string;
}

export interface FeedGroups {
  readonly tenant: string | undefined;
  /** null: all groups. */
  readonly name: string | null;
  readonly limit: number;
  readonly after: number;
}

/** What has happened since the last tick. */
export interface FeedTick {
  /** Sessions to stop. */
  readonly cancelled: readonly ChatName[];
  /** Members that have ended. */
  readonly ended: readonly string[];
  readonly failures: readonly GroupFailure[];
  /** Tenants that may begin no other group now. */
  readonly full: readonly string[];
  /** Now. */
  readonly stats: FeedStats;
}

interface FeedParts {
  readonly writer: TurnWriter;
  readonly dataDir: string | null;
  readonly tokenizerPath: string | null;
  readonly recorded: () => Promise<unknown>;
}

/** Calls of the recorder thread for the plugin `feed`. Its code is loaded by `feedBegin`; before that sessions end without a feed. */
export function feedCalls({ writer, dataDir, tokenizerPath, recorded }: FeedParts) {
  let feed: Feed | null = null;
  const streams = new ByteStreams();
  const incomplete = new IncompleteSessions();
  /** Members that have ended since the last tick. */
  let endedMembers: string[] = [];
  const begun = (): Feed => {
    if (feed === null) throw new Error('the feed has not begun');
    feed.requireHeld();
    return feed;
  };
  /** null: no feed has begun, or another router has taken it over. */
  const own = (): Feed | null => (feed?.takenBy == null ? feed : null);
  const calls = {
    /** @returns records of the process before that could not be read, and are gone */
    async feedBegin(start: FeedStart): Promise<readonly string[]> {
      const { Feed: Feeds } = await import('./feed.ts');
      const { ExpertsReader } = await import('../chat/experts-rows.ts');
      const experts = dataDir === null ? null : new ExpertsReader(dataDir, tokenizerPath ?? '');
      const begun = await Feeds.begin({ ...start, writer, experts, recorded, incomplete }, feedNow());
      writer.onPut = (turn) => own()?.turnPut(turn);
      writer.groupOf = (name) => own()?.groupNameOf(name) ?? '';
      feed = begun;
      return begun.damaged;
    },
    /** A response of the session has passed without being recorded. */
    feedTurnLost: (name: ChatName): void => incomplete.add(name),
    /** The router that has taken the feed over; null: none has. */
    feedTakenBy: (): string | null => feed?.takenBy ?? null,
    feedAdmit: (entry: FeedEntry): Promise<FeedVerdict> => begun().admissions.admit(entry, feedNow()),
    /** No request that announced the group is in flight any more. */
    feedNotBegun: async ({ tenant, name }: { tenant: string; name: string }): Promise<void> =>
      own()?.admissions.notBegun(tenant, name),
    feedDeclare: (group: { tenant: string; name: string; size: number; sessions: readonly string[] }) =>
      begun().admissions.declare(group, feedNow()),
    feedClose: ({ name, tenant }: { name: string; tenant: string | undefined }): Promise<boolean> =>
      begun().close(name, tenant, feedNow()),
    async feedReward({ body, ...name }: SessionName & { body: Uint8Array }): Promise<RewardResult> {
      await recorded();
      const { readReward } = await import('./reward-body.ts');
      const change = await readReward(body, name, writer);
      if (typeof change === 'string') return { code: 'bad_request', message: change };
      const { session } = name;
      if (await begun().isTaken(name, change)) return { code: 'group_taken', message: takenMessage(session) };
      const { members, isTaken } = await begun().rewarded(name, change, feedNow());
      if (isTaken) return { code: 'group_taken', message: takenMessage(session) };
      if (change.reward !== undefined) await begun().keepReward(name);
      const past = members > 0 ? 'given' : await begun().pastRewards(name, change);
      if (past === 'given') return { code: null, message: '' };
      const message = past === 'over' ? leftOutMessage(session) : `No group has the session '${session}'.`;
      return { code: 'session_not_found', message };
    },
    feedGroups({ tenant, name, limit, after }: FeedGroups): Uint8Array {
      const groups = name === null ? begun().groups(tenant, limit, after) : begun().groupsNamed(name, tenant);
      return Buffer.concat([...inPieces(groupsJson(groups))]);
    },
    /** The newest pending groups: keys, and rows as JSON. */
    feedRows: () =>
      begun()
        .newest(SHOWN_GROUPS)
        .map((group) => [String(group.id), JSON.stringify(group)] as const),
    feedStats: (): FeedStats => begun().stats,
    async feedTick(): Promise<FeedTick> {
      const cancelled = await begun().tick(feedNow());
      const ended = endedMembers;
      endedMembers = [];
      const { failures, admissions, stats } = begun();
      return { cancelled, ended, failures: failures.take(), full: admissions.full(feedNow()), stats };
    },
    /** @returns whether `feedNext` has groups; false: none came in time */
    async feedTake({ format, ...take }: FeedTake): Promise<boolean> {
      const { deliveries } = begun();
      const groups = await deliveries.take(take, feedNow());
      if (groups.length === 0) return false;
      const encode = format === 'arrow' ? (await import('./arrow.ts')).toArrow : (await import('./ndjson.ts')).toNdjson;
      streams.begin(take.id, encode(deliveries.deliver(take.id, groups)));
      return true;
    },
    /** null: they are complete. The consumer's connection took all that was returned before. */
    async feedNext(take: number): Promise<Uint8Array | null> {
      const { deliveries } = begun();
      deliveries.sent(take);
      let bytes: Uint8Array | null = null;
      try {
        return (bytes = await streams.next(take));
      } catch (error) {
        deliveries.failed(take, error, feedNow());
        throw error;
      } finally {
        if (bytes === null) await deliveries.end(take);
      }
    },
    /** The consumer has left. */
    async feedLeave(take: number): Promise<void> {
      await streams.end(take);
      await feed?.deliveries.end(take);
    },
    async feedClaims({ leases, tenant, act, leaseSecs }: FeedClaims): Promise<AckResult[]> {
      const { deliveries } = begun();
      const results: AckResult[] = [];
      for (const lease of leases) {
        const nowMs = feedNow();
        results.push(
          act === 'renew'
            ? await deliveries.renew(lease, tenant, leaseSecs, nowMs)
            : await deliveries[act](lease, tenant, nowMs),
        );
      }
      return results;
    },
    /** Nothing is waited for any longer: the router stops. Ends of sessions may still come. */
    feedStop: (): void => feed?.deliveries.close(),
  };
  return {
    calls,
    /** The last ends of sessions have come. */
    release: async (): Promise<void> => own()?.release(feedNow()),
    /** A turn of the session is on no record, and will be on none. */
    turnLost: (name: ChatName): void => incomplete.add(name),
    /** The turns of the session were removed, to make space. A session that is over and in no group is of no interest. */
    evicted(name: ChatName): void {
      if (own()?.has(name) === true) incomplete.add(name);
    },
    /** What the ends of sessions need of the feed; without one no group has them. */
    ends: {
      isTaken: (name: SessionName, change: RewardChange): Promise<boolean> =>
        own()?.isTaken(name, { ...change, id: '' }) ?? Promise.resolve(false),
      async ended(name: SessionName, change: RewardChange): Promise<FeedEnd> {
        const end = await own()?.ended(name, change, feedNow());
        incomplete.over(name);
        if (end === undefined) return { members: 0, isTaken: false };
        if (end.members > 0) endedMembers.push(name.session);
        return end;
      },
      movedTo: (name: SessionName): string | null => (feed?.has(name) === true ? feed.takenBy : null),
    },
  };
}

function* groupsJson(groups: readonly object[]): Generator<string> {
  yield '{"groups":';
  yield* listJson(groups);
  yield '}';
}

/** So many groups are shown on a page. */
const SHOWN_GROUPS = 200;

const leftOutMessage = (session: string): string =>
  `No consumer gets session '${session}': its group is over, and it was not delivered. POST /sessions/{session}/finish stores a reward with its turns.`;

const takenMessage = (session: string): string =>
  `A consumer has the group of session '${session}': its rewards can't change any more.`;
