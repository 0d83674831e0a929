import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { RewardChange } from '../../shared/feed.ts';
import type { OutcomeChange } from '../../shared/outcome.ts';
import type { SessionName } from '../../shared/turn.ts';
import { type StoreCounts, filesOf, turnsOf } from './store.ts';
import type { FeedEnd } from '../feed/feed.ts';
import type { TurnWriter, WriterState } from './writer.ts';

/** The state of the store, which the event loop reads once a second. */
export interface StoreState extends WriterState, StoreCounts {
  readonly place: string;
  /** Turns that were removed because of the age of their sessions. */
  readonly expired: number;
  /** Turns that were evicted from the token trees before their sessions were over. */
  readonly evictedTurns: number;
  /** Prompts of sessions with lost turns. */
  readonly lostPrompts: number;
}

/** The end of a session, as its client said it. `rewards`: by name, for the feed alone. */
export interface SessionEnd extends SessionName, OutcomeChange, Pick<RewardChange, 'rewards'> {}

export interface SessionEnded {
  /** How many sessions of that name are on record: one for each tenant that has it. */
  readonly known: number;
  /** The reward came after a consumer of the feed had got the session's group. */
  readonly isTaken: boolean;
  /** The router that has taken over the feed with the group of the session, and must get the end too; null: none has. */
  readonly movedTo: string | null;
}

export type DuringRemoval = (removal: () => Promise<number>) => Promise<number>;

/** The feed, as far as the ends of sessions concern it. */
interface FeedEnds {
  /** Whether the rewards come after a consumer has got the group of the session. */
  isTaken(name: SessionName, change: RewardChange): Promise<boolean>;
  ended(name: SessionName, change: RewardChange): Promise<FeedEnd>;
  movedTo(name: SessionName): string | null;
}

interface StoreParts {
  readonly writer: TurnWriter;
  readonly dataDir: string | null;
  /** Resolves when the turns that ended before the call are in the store. */
  readonly recorded: () => Promise<unknown>;
  /** Is called when a session is over; with a name without a tenant for the sessions of all tenants. Further turns may still follow. */
  readonly onEnded: (name: SessionName) => void;
  readonly feed: FeedEnds;
  /** What others count; `lostParts`: tensors that could not be kept. */
  readonly counted: () => Pick<StoreState, 'expired' | 'evictedTurns' | 'lostPrompts'> & { readonly lostParts: number };
}

/** Calls of the recorder thread about stored sessions. */
export function storeCalls({ writer, dataDir, recorded, onEnded, feed, counted }: StoreParts) {
  const { store } = writer;
  const remove = async ({ session, tenant }: SessionName): Promise<number> => {
    // Turns that came while the ones before them were written: they would be written after it.
    await writer.flush();
    writer.requireAll({ session, tenant });
    // Files of damaged turns are not known, and stay.
    const outlines = await turnsOf(store, session, tenant, () => {});
    const removed = await store.removeSession(session, tenant);
    for (const { file } of dataDir === null ? [] : outlines.flatMap(filesOf)) {
      await rm(join(dataDir!, file), { force: true });
    }
    return removed;
  };
  return {
    /**
     * Its files too. Rejects while the store lacks turns of it.
     * @param during runs the removal, once the turns that ended before the call are in the store; it is to put no further turn of the session
     * until the removal has ended
     * @returns how many turns it had
     */
    async removeSession(name: SessionName, during: DuringRemoval = (removal) => removal()): Promise<number> {
      await recorded();
      writer.requireAll(name);
      return during(() => remove(name));
    },
    /** A session is over. Rejects while the store is away. */
    async sessionEnded({ session, tenant, rewards, ...change }: SessionEnd): Promise<SessionEnded> {
      await recorded();
      // The store gives an outcome only to sessions that it has.
      writer.requireAll({ session, tenant });
      onEnded({ session, tenant });
      const rewarded = { reward: change.reward, rewards };
      const wasTaken = await feed.isTaken({ session, tenant }, rewarded);
      // What a consumer got and what exports say stays the same.
      const kept = wasTaken ? { labels: change.labels } : change;
      const known = await store.finish({ session, tenant }, kept, Date.now());
      const { members, isTaken } = await feed.ended({ session, tenant }, wasTaken ? {} : rewarded);
      // A member of a group has ended also if none of its requests left a turn.
      return {
        known: Math.max(known, members),
        isTaken: wasTaken || isTaken,
        movedTo: feed.movedTo({ session, tenant }),
      };
    },
    async storeState(): Promise<StoreState> {
      const { place } = store;
      // One that is away can't count.
      const unknown = { turns: -1, bytes: -1, evicted: 0, evictedLive: 0 };
      const countsOf = async (): Promise<StoreCounts> => store.counts();
      const counts = writer.state.isFailing ? unknown : await countsOf().catch(() => unknown);
      const { dropped, ...state } = writer.state;
      const { lostParts, ...others } = counted();
      return { ...state, ...counts, ...others, place, dropped: dropped + lostParts };
    },
  };
}
