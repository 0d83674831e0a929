import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { SessionName, Turn, TurnQuery } from '../../shared/turn.ts';
import { type StoreCounts, filesOf } from './store.ts';
import type { TurnWriter, WriterState } from './writer.ts';

/** How the store is, as the event loop asks once a second. */
export interface StoreState extends WriterState, StoreCounts {
  readonly place: string;
  /** Turns that were removed as their sessions were too old. */
  readonly expired: number;
}

/** What others count. */
export interface Counted {
  readonly lostParts: () => number;
  readonly expired: () => number;
}

/** What the recorder thread can be asked about what it keeps. What was put before a question is in its answer. */
export function storeCalls(writer: TurnWriter, dataDir: string | null, { lostParts, expired }: Counted) {
  const { store } = writer;
  const after = async <T>(read: () => T | Promise<T>): Promise<T> => {
    await writer.flush();
    return read();
  };
  return {
    putTurns(turns: readonly Turn[]): void {
      for (const turn of turns) writer.put(turn);
    },
    getTurn: (id: string) => after(() => store.get(id)),
    findTurns: (query: TurnQuery) => after(() => store.find(query)),
    findSessions: (query: TurnQuery) => after(() => store.sessions(query)),
    outlineSession: ({ session, tenant }: SessionName) => after(() => store.outlines(session, tenant)),
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
