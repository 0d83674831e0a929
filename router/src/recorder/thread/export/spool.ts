import { closeSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const PIECE_BYTES = 1_048_576;
let made = 0;

/** Bytes that wait on disk, for formats that say at their beginning how much there will be. */
export class Spool {
  readonly #file: number;
  bytes = 0;

  constructor() {
    const path = join(tmpdir(), `turnout-export-${process.pid}-${performance.now()}-${made++}`);
    this.#file = openSync(path, 'wx+', 0o600);
    // It lives until it is closed, however that comes about.
    rmSync(path);
  }

  push(array: ArrayBufferView): void {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    for (let at = 0; at < bytes.length;) at += writeSync(this.#file, bytes, at, bytes.length - at);
    this.bytes += bytes.length;
  }

  /** All of it, in order. */
  *read(): Generator<Uint8Array> {
    for (let at = 0; at < this.bytes;) {
      const piece = new Uint8Array(Math.min(PIECE_BYTES, this.bytes - at));
      const count = readSync(this.#file, piece, 0, piece.length, at);
      if (count === 0) throw new Error('the file that an export is gathered in has lost bytes');
      at += count;
      yield piece.subarray(0, count);
    }
  }

  close(): void {
    closeSync(this.#file);
  }
}
