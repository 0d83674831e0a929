import { mkdirSync, write as writeBytes, writeSync } from 'node:fs';
import { type FileHandle, open, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { Config } from '../config/options.ts';
import type { LineTarget } from './line-writer.ts';

const write = promisify(writeBytes);

/** Time between attempts to write to a full pipe. */
const FULL_PIPE_MS = 20;

/** Not written on the event loop, because a pipe may block its writer. */
export function standardTarget(fd: 1 | 2): LineTarget {
  return {
    async write(text) {
      let rest = Buffer.from(text);
      while (rest.length > 0) {
        try {
          rest = rest.subarray((await write(fd, rest)).bytesWritten);
        } catch (error) {
          // The parent process may have made the pipe non-blocking.
          if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
          await delay(FULL_PIPE_MS);
        }
      }
    },
    writeSync: (text) => void writeSync(fd, text),
  };
}

/** `turnout.log`, and older files beside it: `turnout.log.1`, … the higher, the older. */
export class RotatingFile implements LineTarget {
  readonly #path: string;
  readonly #maxBytes: number;
  readonly #maxFiles: number;
  #file: FileHandle | null = null;
  #bytes = 0;
  #shouldReopen = false;

  /** Creates the folder; throws if that fails. */
  constructor(folder: string, maxBytes: number, maxFiles: number, name = 'turnout.log') {
    mkdirSync(folder, { recursive: true });
    this.#path = join(folder, name);
    this.#maxBytes = maxBytes;
    this.#maxFiles = maxFiles;
  }

  /** Another program may have renamed the file: the next line goes to a new one. */
  reopen(): void {
    this.#shouldReopen = true;
  }

  async write(text: string): Promise<void> {
    if (this.#shouldReopen) await this.close();
    this.#shouldReopen = false;
    let rest = Buffer.from(text);
    while (rest.length > 0) {
      const file = (this.#file ??= await this.#open());
      const end = endOfLines(rest, this.#maxBytes - this.#bytes);
      if (end === 0 && this.#bytes > 0) {
        await this.#rotate();
        continue;
      }
      // A line that is longer than the limit gets a file of its own.
      const part = rest.subarray(0, end === 0 ? rest.indexOf('\n') + 1 || rest.length : end);
      await file.appendFile(part);
      this.#bytes += part.length;
      rest = rest.subarray(part.length);
    }
  }

  writeSync(text: string): void {
    if (this.#file !== null) writeSync(this.#file.fd, text);
  }

  async #open(): Promise<FileHandle> {
    const file = await open(this.#path, 'a');
    this.#bytes = (await file.stat()).size;
    return file;
  }

  async close(): Promise<void> {
    const file = this.#file;
    this.#file = null;
    await file?.close();
  }

  async #rotate(): Promise<void> {
    await this.close();
    if (this.#maxFiles === 1) await rm(this.#path, { force: true });
    for (let number = this.#maxFiles - 1; number > 0; number--) {
      await rename(number === 1 ? this.#path : `${this.#path}.${number - 1}`, `${this.#path}.${number}`).catch(
        (error: NodeJS.ErrnoException) => {
          if (error.code !== 'ENOENT') throw error;
        },
      );
    }
  }
}

/** @returns the length of the whole lines within `max` bytes */
function endOfLines(bytes: Buffer, max: number): number {
  if (bytes.length <= max) return bytes.length;
  return max <= 0 ? 0 : bytes.lastIndexOf('\n', max - 1) + 1;
}

/** Throws an error that names the option. */
export function logFiles({ logDir, logMaxBytes, logMaxFiles }: Config): RotatingFile | undefined {
  try {
    return logDir === undefined ? undefined : new RotatingFile(logDir, logMaxBytes, logMaxFiles);
  } catch (error) {
    throw new Error(`--log-dir: ${(error as Error).message}`, { cause: error });
  }
}
