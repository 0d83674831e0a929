import { constants, zstdCompressSync, zstdDecompressSync } from 'node:zlib';

/**
 * A stored body: unchanged, or compressed, which a first byte shows that no JSON begins with. The dictionary of the compression may
 * be another body, usually the request of the previous turn, so that a chat's history is stored once.
 * Bytes: 0, length of the base's id, depth, the base's id, a Zstandard frame.
 */
const PACKED = 0;
const HEAD_BYTES = 3;
const LEVEL = 3;
/** A smaller body is stored unchanged. */
const MIN_BYTES = 128;
/** How many bodies may have to be read to read one. */
const MAX_DEPTH = 64;
/** A longer line of bases is not read. Earlier releases could put a turn again with another base than those before it know. */
export const MAX_LINE = 4 * MAX_DEPTH;

/** The body that is the dictionary of another one. */
export interface Base {
  /** The id of its turn. */
  readonly id: string;
  readonly depth: number;
  readonly body: Uint8Array;
}

/** A compressed body. */
export interface Packed {
  /** '': no other body. */
  readonly base: string;
  readonly depth: number;
  readonly frame: Uint8Array;
}

export function packed(body: Uint8Array, base: Base | null): Uint8Array {
  if (body.length < MIN_BYTES && body[0] !== PACKED) return new Uint8Array(body);
  const used = base !== null && base.depth + 1 < MAX_DEPTH ? base : null;
  const id = Buffer.from(used?.id ?? '', 'latin1');
  // The window holds both bodies: a match may reach back to the beginning of the base.
  const windowLog = Math.ceil(Math.log2(body.length + (used?.body.length ?? 0) + 1));
  const params = {
    [constants.ZSTD_c_compressionLevel]: LEVEL,
    // Detects a base other than the one that it was made with.
    [constants.ZSTD_c_checksumFlag]: 1,
    [constants.ZSTD_c_windowLog]: Math.min(Math.max(windowLog, 10), 26),
  };
  const frame = zstdCompressSync(body, { params, ...(used === null ? {} : { dictionary: used.body }) });
  // Memory of its own: a part of Node's pool of buffers would keep all of that pool.
  const made = new Uint8Array(HEAD_BYTES + id.length + frame.length);
  made.set([PACKED, id.length, used === null ? 0 : used.depth + 1]);
  made.set(id, HEAD_BYTES);
  made.set(frame, HEAD_BYTES + id.length);
  return made;
}

/** @returns null: it is stored unchanged */
export function readPacked(bytes: Uint8Array): Packed | null {
  if (bytes[0] !== PACKED) return null;
  const [, length = 0, depth = 0] = bytes;
  const base = Buffer.from(bytes.subarray(HEAD_BYTES, HEAD_BYTES + length)).toString('latin1');
  return { base, depth, frame: bytes.subarray(HEAD_BYTES + length) };
}

/** @param base its dictionary; null: it has none @returns null: its dictionary is another body */
export function unpacked({ frame }: Packed, base: Uint8Array | null): Buffer | null {
  try {
    return zstdDecompressSync(frame, base === null ? {} : { dictionary: base });
  } catch {
    return null;
  }
}
