import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { SessionName, TurnQuery } from '../../shared/turn.ts';
import { type StoreCounts, filesOf } from './store.ts';
import type { TurnWriter, WriterState } from './writer.ts';

/** The state of the store, which the event loop reads once a second. */
export interface StoreState extends WriterState, StoreCounts {
  readonly place: string;
  /** Turns that were removed because of the age of their sessions. */
  readonly expired: number;
}

/** What others count. */
export interface Counted {
  readonly lostParts: () => number;
  readonly expired: () => number;
}

/** Calls of the recorder thread about stored turns. Turns that were put before a call are in its result. */
export function storeCalls(writer: TurnWriter, dataDir: string | null, { lostParts, expired }: Counted) {
  const { store } = writer;
  const after = async <T>(read: () => T | Promise<T>): Promise<T> => {
    await writer.flush();
    return read();
  };
  return {
    findTurns: (query: TurnQuery) => after(() => store.find(query)),
    /** Its files too. @returns how many turns it had */
    removeSession: ({ session, tenant }: SessionName) =>
      after(async () => {
        const outlines = await store.outlines(session, tenant);
        const removed = await store.removeSession(session, tenant);
        for (const { file } of dataDir === null ? [] : outlines.flatMap(filesOf)) {
          await rm(join(dataDir!, file), { force: true });
        }
        return removed;
      }),
    async storeState(): Promise<StoreState> {
      const { place } = store;
      // One that is away can't count.
      const unknown = { turns: -1, bytes: -1, evicted: 0, evictedLive: 0 };
      const counted = async (): Promise<StoreCounts> => store.counts();
      const counts = writer.state.isFailing ? unknown : await counted().catch(() => unknown);
      const { dropped, ...state } = writer.state;
      return { ...state, ...counts, place, dropped: dropped + lostParts(), expired: expired() };
    },
  };
}
