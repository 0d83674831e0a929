import { randomBytes } from 'node:crypto';
import { mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { Logger } from '../observe/log.ts';
import { WorkerThread } from '../threads/worker-thread.ts';
import type { unpack } from './unpack.ts';

/** A checkpoint of full weights has some hundred files. */
const MAX_ENTRIES = 10_000;
/** Weights hardly compress, except for those of a new adapter, half of which are zeros. */
const MAX_RATIO = 32;
const MIN_BYTES = 1_073_741_824;
/** Something that is written to at least this often is still being unpacked, by this router or by another one. */
const ABANDONED_MS = 600_000;

/** An archive that was unpacked. */
interface Unpacked {
  readonly directory: string;
  /** When the archive was last written. */
  readonly mtimeMs: number;
}

interface Work {
  readonly kind: 'unpack' | 'remove';
  readonly done: Promise<void>;
}

/**
 * Unpacks the archives of weights (`NAME.tar.gz`), which engines do not read, into folders beside them: `NAME.unpacked-…`, where the rest
 * of the name says which state of the archive it is. A folder with that name is whole, also after a restart, because it is renamed once
 * all is in it.
 */
export class Archives {
  readonly #log: Logger;
  readonly #thread = new WorkerThread<{ unpack: typeof unpack }>('tinker/unpack-in-thread');
  /** By directory: what is being done with it. */
  readonly #busy = new Map<string, Work>();
  #isClosed = false;

  constructor(log: Logger) {
    this.#log = log;
  }

  /** Resolves when the archive is unpacked, once for all who ask; null: there is no such archive. Rejects with why it can't be. */
  async unpacked(archive: string): Promise<Unpacked | null> {
    const found = await stat(archive).catch(() => null);
    if (found === null) return null;
    const { mtimeMs, size } = found;
    const state = `${Math.round(mtimeMs).toString(36)}-${size.toString(36)}`;
    const directory = `${archive.slice(0, -SUFFIX.length)}.unpacked-${state}`;
    await this.#alone('unpack', directory, () => this.#unpack(archive, directory, size));
    return { directory, mtimeMs };
  }

  /** For a directory that no engine reads from any more. */
  async remove(directory: string): Promise<void> {
    await this.#alone('remove', directory, async () => {
      // Renamed first: a later call must not find a directory that is half removed.
      const part = partOf(directory);
      await rename(directory, part);
      await rm(part, { recursive: true, force: true });
    }).catch((error: unknown) =>
      this.#log.warn({ directory, error: (error as Error).message }, 'unpacked weights were not removed'),
    );
  }

  /** Does not wait for what is being unpacked. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#thread.abort(closing());
    await Promise.allSettled(Array.from(this.#busy.values(), ({ done }) => done));
    await this.#thread.close();
  }

  /** One after the other; who asks for what the last one is doing waits for that one. */
  #alone(kind: Work['kind'], directory: string, work: () => Promise<void>): Promise<void> {
    const last = this.#busy.get(directory);
    if (last?.kind === kind) return last.done;
    const mine = { kind, done: (last?.done ?? Promise.resolve()).then(work, work) };
    this.#busy.set(directory, mine);
    const over = (): void => {
      if (this.#busy.get(directory) === mine) this.#busy.delete(directory);
    };
    mine.done.then(over, over);
    return mine.done;
  }

  async #unpack(archive: string, directory: string, size: number): Promise<void> {
    if ((await stat(directory).catch(() => null)) !== null) return;
    const startMs = performance.now();
    const part = partOf(directory);
    try {
      await mkdir(part);
      await removeAbandoned(part);
      if (this.#isClosed) throw closing();
      const bytes = MIN_BYTES + MAX_RATIO * size;
      await this.#thread.run('unpack', archive, part, { entries: MAX_ENTRIES, bytes });
      await rename(part, directory).catch(async (error: unknown) => {
        // Another router that shares the folder was faster.
        if ((await stat(directory).catch(() => null)) === null) throw error;
      });
    } finally {
      await rm(part, { recursive: true, force: true });
    }
    const ms = Math.round(performance.now() - startMs);
    this.#log.info({ archive, directory, bytes: size, ms }, 'an archive of weights was unpacked');
  }
}

const closing = (): Error => new Error('the router is closing');

const SUFFIX = '.tar.gz';
const PART = '.part-';

const partOf = (directory: string): string => `${directory}${PART}${randomBytes(6).toString('hex')}`;

/** Removes what processes that were killed left unfinished beside this part. Times are compared on the clock of the disk's host. */
async function removeAbandoned(part: string): Promise<void> {
  const folder = dirname(part);
  const { mtimeMs: nowMs } = await stat(part);
  for (const name of await readdir(folder)) {
    if (!name.includes(PART) || !name.includes('.unpacked-') || name === basename(part)) continue;
    const path = join(folder, name);
    const names = await readdir(path, { recursive: true }).catch(() => []);
    const times = await Promise.all(['', ...names].map((each) => stat(join(path, each)).catch(() => null)));
    const lastMs = Math.max(...times.map((found) => found?.mtimeMs ?? 0));
    if (nowMs - lastMs > ABANDONED_MS) await rm(path, { recursive: true, force: true });
  }
}
