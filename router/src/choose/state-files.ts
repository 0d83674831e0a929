import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { appendFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { StateMap, StateStore } from './state.ts';

/** A file is rewritten when it has this many lines more than twice the number of entries. */
const SPARE_LINES = 10_000;

/** One map in one file: a line of JSON per change, `["name","value"]`, or `["name"]` for a deletion. */
class StateFile implements StateMap {
  readonly #path: string;
  readonly #onError: (error: Error) => void;
  readonly #map = new Map<string, string>();
  #pending = '';
  #lines: number;
  #writing: Promise<void> | null = null;
  /** A write failed, so the content of the file is not known. */
  #isInDoubt = false;

  constructor(path: string, onError: (error: Error) => void) {
    this.#path = path;
    this.#onError = onError;
    // A crash may have truncated the last line, so an unreadable line is skipped.
    for (const line of readText(path).split('\n')) this.#replay(line);
    this.#lines = this.#map.size;
    writeFileSync(`${path}.new`, this.#whole());
    renameSync(`${path}.new`, path);
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
    this.#pending += `${JSON.stringify(change)}\n`;
    this.#lines++;
    // Changes made before the write begins are written with it.
    this.#writing ??= this.#write();
  }

  async #write(): Promise<void> {
    await new Promise(setImmediate);
    try {
      while (this.#pending !== '') {
        const text = this.#pending;
        this.#pending = '';
        if (this.#isInDoubt || this.#lines > 2 * this.#map.size + SPARE_LINES) {
          this.#lines = this.#map.size;
          await writeFile(`${this.#path}.new`, this.#whole());
          await rename(`${this.#path}.new`, this.#path);
          this.#isInDoubt = false;
        } else await appendFile(this.#path, text);
      }
    } catch (error) {
      // What could not be written is still in the map: the next change rewrites the file.
      this.#isInDoubt = true;
      this.#onError(error as Error);
    } finally {
      this.#writing = null;
    }
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
      await Promise.all([...files.values()].map((file) => file.flush()));
    },
  };
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw error;
  }
}
