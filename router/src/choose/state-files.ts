import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { appendFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { backoff } from '../kit/backoff.ts';
import type { StateMap, StateStore } from './state.ts';

/** A file is rewritten when it has this many lines more than twice the number of entries. */
const SPARE_LINES = 10_000;
/** Time between attempts after a failed write: each one writes the whole file. */
const FIRST_RETRY_MS = 1_000;
const LONGEST_RETRY_MS = 10_000;
/** A file that is about to replace another one is on the disk first: a power failure leaves the old or the new content, not an empty file. */
const SYNCED = { flush: true } as const;

/** One map in one file: a line of JSON per change, `["name","value"]`, or `["name"]` for a deletion. */
class StateFile implements StateMap {
  readonly #path: string;
  readonly #onError: (error: Error) => void;
  readonly #map = new Map<string, string>();
  #pending = '';
  #lines: number;
  #writing: Promise<void> | null = null;
  /** Failed writes in a row. After one the content of the file is not known. */
  #failures = 0;
  /** The next attempt; null: the last write did not fail. */
  #retry: NodeJS.Timeout | null = null;

  constructor(path: string, onError: (error: Error) => void) {
    this.#path = path;
    this.#onError = onError;
    // A crash may have truncated the last line, so an unreadable line is skipped.
    for (const line of readText(path).split('\n')) this.#replay(line);
    this.#lines = this.#map.size;
    try {
      writeFileSync(`${path}.new`, this.#whole(), SYNCED);
      renameSync(`${path}.new`, path);
    } catch (error) {
      // A router on a full disk starts all the same.
      this.#failed(error as Error);
    }
  }

  get size(): number {
    return this.#map.size;
  }

  get(name: string): string | undefined {
    return this.#map.get(name);
  }

  set(name: string, value: string): void {
    if (this.#map.get(name) === value) return;
    this.#map.set(name, value);
    this.#append([name, value]);
  }

  delete(name: string): void {
    if (this.#map.delete(name)) this.#append([name]);
  }

  entries(): Iterable<[string, string]> {
    return this.#map.entries();
  }

  async flush(): Promise<void> {
    while (this.#writing !== null) await this.#writing;
  }

  /** Tries a last time to write what could not be written. */
  async close(): Promise<void> {
    await this.flush();
    if (this.#retry === null) return;
    clearTimeout(this.#retry);
    await (this.#writing = this.#write());
    clearTimeout(this.#retry);
  }

  #replay(line: string): void {
    let change: unknown;
    try {
      change = JSON.parse(line);
    } catch {
      // A truncated line loses only its own change.
      return;
    }
    if (!Array.isArray(change)) return;
    const [name, value] = change as unknown[];
    if (typeof name !== 'string') return;
    if (change.length === 1) this.#map.delete(name);
    else if (typeof value === 'string') this.#map.set(name, value);
  }

  #whole(): string {
    let text = '';
    for (const entry of this.#map) text += `${JSON.stringify(entry)}\n`;
    return text;
  }

  #append(change: readonly string[]): void {
    // The next attempt writes the whole map.
    if (this.#retry !== null) return;
    this.#pending += `${JSON.stringify(change)}\n`;
    this.#lines++;
    // Changes made before the write begins are written with it.
    this.#writing ??= this.#write();
  }

  async #write(): Promise<void> {
    this.#retry = null;
    await new Promise(setImmediate);
    try {
      do {
        const text = this.#pending;
        this.#pending = '';
        if (this.#failures > 0 || this.#lines > 2 * this.#map.size + SPARE_LINES) {
          this.#lines = this.#map.size;
          await writeFile(`${this.#path}.new`, this.#whole(), SYNCED);
          await rename(`${this.#path}.new`, this.#path);
          this.#failures = 0;
        } else await appendFile(this.#path, text);
      } while (this.#pending !== '');
    } catch (error) {
      this.#failed(error as Error);
    } finally {
      this.#writing = null;
    }
  }

  #failed(error: Error): void {
    const waitMs = backoff(++this.#failures, FIRST_RETRY_MS, LONGEST_RETRY_MS);
    this.#retry = setTimeout(() => (this.#writing = this.#write()), waitMs).unref();
    this.#onError(error);
  }
}

/** Keeps state in files of `directory`, which is created if missing. Throws if that fails. */
export function fileStore(directory: string, onError: (error: Error) => void): StateStore {
  mkdirSync(directory, { recursive: true });
  const files = new Map<string, StateFile>();
  return {
    open(name) {
      let file = files.get(name);
      if (file === undefined) files.set(name, (file = new StateFile(join(directory, `${name}.jsonl`), onError)));
      return file;
    },
    async flush() {
      await Promise.all(Array.from(files.values(), (file) => file.flush()));
    },
    async close() {
      await Promise.all(Array.from(files.values(), (file) => file.close()));
    },
  };
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw new Error(`${path}: ${(error as Error).message}`, { cause: error });
  }
}
