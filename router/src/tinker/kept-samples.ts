import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import { mkdir, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../observe/log.ts';
import { isOwnFuture } from './futures.ts';

/** An asample request that has no result yet. */
export interface KeptSample {
  readonly id: string;
  readonly tenant: string;
  /** See `Future`. */
  readonly target: string;
  /** As the client sent it. */
  readonly body: Buffer;
}

/** A file that is not whole may be one that the router before an upgrade is writing, unless it is older. */
const WRITING_MS = 60_000;

/**
 * Open samples in files, one each, so that a router that was killed begins them anew: a line of JSON, then the client's body. A file
 * that was cut off by the end of the process belongs to a request whose client has no id yet. The router before an upgrade may remove files
 * at any time.
 */
export class KeptSamples {
  readonly #folder: string;
  readonly #log: Logger;
  readonly #writing = new Map<string, Promise<void>>();
  #failures = 0;

  constructor(dataDir: string, log: Logger) {
    this.#folder = join(dataDir, 'tinker-samples');
    this.#log = log;
  }

  /** Those of the process before, oldest first. */
  *load(): Generator<KeptSample> {
    // The first sample makes it: a full disk takes none.
    const names = existsSync(this.#folder) ? readdirSync(this.#folder) : [];
    const ids = names.filter(isOwnFuture);
    for (const id of ids.toSorted((a, b) => numberOf(a) - numberOf(b))) {
      const read = this.#read(id);
      if (read === null) continue;
      const { line, body, isOld } = read;
      try {
        const { tenant, target = '', bytes: length } = JSON.parse(line) as KeptLine;
        if (body.length === length) {
          yield { id, tenant, target, body };
          continue;
        }
      } catch {
        // Cut off within its first line.
      }
      if (isOld) this.forget(id);
    }
  }

  /** Of one of `load`; null: it is gone. */
  bodyOf(id: string): Buffer | null {
    return this.#read(id)?.body ?? null;
  }

  /** @returns null: it is gone, or the disk fails, which is logged */
  #read(id: string): { line: string; body: Buffer; isOld: boolean } | null {
    const path = join(this.#folder, id);
    try {
      const isOld = Date.now() - statSync(path).mtimeMs > WRITING_MS;
      const bytes = readFileSync(path);
      const end = bytes.indexOf('\n');
      return { line: bytes.toString('utf8', 0, end), body: bytes.subarray(end + 1), isOld };
    } catch (error) {
      this.#failed(error, 'read');
      return null;
    }
  }

  /** Resolves when a kill of the process does not lose it any more; or when the disk fails, which is logged. */
  keep({ id, tenant, target, body }: KeptSample): Promise<void> {
    const line = Buffer.from(`${JSON.stringify({ tenant, target, bytes: body.length })}\n`);
    const written = this.#write(id, [line, body]).catch((error: unknown) => this.#failed(error, 'written'));
    this.#writing.set(id, written);
    return written;
  }

  async #write(id: string, content: Buffer[]): Promise<void> {
    const path = join(this.#folder, id);
    try {
      await writeFile(path, content);
    } catch (error) {
      if (!isMissing(error)) throw error;
      await mkdir(this.#folder, { recursive: true });
      await writeFile(path, content);
    }
  }

  forget(id: string): void {
    const written = this.#writing.get(id) ?? Promise.resolve();
    const gone = written
      .then(() => unlink(join(this.#folder, id)))
      .catch((error: unknown) => this.#failed(error, 'removed'));
    this.#writing.set(id, gone);
    void gone.then(() => this.#writing.delete(id));
  }

  async close(): Promise<void> {
    await Promise.all(this.#writing.values());
  }

  #failed(error: unknown, done: 'read' | 'written' | 'removed'): void {
    if (isMissing(error)) return;
    const count = ++this.#failures;
    if ((count & (count - 1)) === 0)
      this.#log.error({ error: (error as Error).message, count }, `--data-dir: a Tinker sample was not ${done}`);
  }
}

const isMissing = (error: unknown): boolean => (error as NodeJS.ErrnoException).code === 'ENOENT';

interface KeptLine {
  readonly tenant: string;
  readonly target?: string;
  readonly bytes: number;
}

/** Ids of one epoch are numbered. */
const numberOf = (id: string): number => parseInt(id.split('-')[2] ?? '0', 36);
