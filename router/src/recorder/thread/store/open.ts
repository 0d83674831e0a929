import { MemoryStore } from './memory.ts';
import { PackingStore } from './packing-store.ts';
import type { TrajectoryStore } from './store.ts';

/** Where turns are stored. */
export interface StorePlace {
  /** `memory`, `sqlite`, a Redis URL; null: SQLite if there is a data folder, else memory. */
  readonly store: string | null;
  readonly dataDir: string | null;
  readonly memoryBytes: number;
  /** SQLite: each write is on the disk when it is done. */
  readonly syncs?: boolean;
}

/** Loads only the code that the store needs. Rejects with a message for the user. */
export const openStore = async (place: StorePlace): Promise<TrajectoryStore> => new PackingStore(await storeAt(place));

async function storeAt({ store, dataDir, memoryBytes, syncs = false }: StorePlace): Promise<TrajectoryStore> {
  if (store !== null && isRedis(store)) return (await import('./redis.ts')).RedisStore.open(store, false);
  if (store === 'memory' || (store === null && dataDir === null)) return new MemoryStore(memoryBytes);
  if (dataDir === null) throw new Error('--store sqlite needs --data-dir: the folder of its file.');
  return new (await import('./sqlite.ts')).SqliteStore(dataDir, false, syncs);
}

/** Opens a store of another process for reading: it must exist, and is not changed. */
export const openToRead = async (store: string | null, dataDir: string | null): Promise<TrajectoryStore> =>
  new PackingStore(await storeToRead(store, dataDir));

async function storeToRead(store: string | null, dataDir: string | null): Promise<TrajectoryStore> {
  if (store !== null && isRedis(store)) return (await import('./redis.ts')).RedisStore.open(store, true);
  if (store === 'memory')
    throw new Error(
      '--store memory: only the router itself can read it: GET /trajectories?format=jsonl of that router',
    );
  if (store !== null && store !== 'sqlite') throw new Error(`--store ${store}: sqlite (with --data-dir) or redis://…`);
  if (dataDir === null) throw new Error('give the --data-dir of the router, or its --store redis://…');
  return new (await import('./sqlite.ts')).SqliteStore(dataDir, true);
}

export const isRedis = (store: string): boolean => /^rediss?:\/\//.test(store);
