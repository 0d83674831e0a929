const MAGIC = Buffer.from('\x93NUMPY', 'latin1');

/** The header of a .npy file, in which vLLM returns tensors. */
export interface NpyHead {
  /** Without a byte order of `<`, `|` or `=`: `u1`, `i4`. */
  readonly type: string;
  /** null: the numbers are in Fortran order, or the header has no shape. */
  readonly shape: readonly number[] | null;
  /** Offset of the numbers. */
  readonly end: number;
}

/** Whether the bytes may be the beginning of a .npy file. */
export const mayBeNpy = (bytes: Buffer): boolean =>
  bytes.subarray(0, MAGIC.length).equals(MAGIC.subarray(0, bytes.length));

/**
 * NEP 1: magic, version, length of the header in two bytes (four from version 2 on), header, numbers.
 *
 * @returns null: it is not a .npy file, or its header is not complete
 */
export function readNpyHead(bytes: Buffer): NpyHead | null {
  if (bytes.length < 12 || !mayBeNpy(bytes)) return null;
  const isLong = bytes[6]! > 1;
  const start = isLong ? 12 : 10;
  const end = start + (isLong ? bytes.readUInt32LE(8) : bytes.readUInt16LE(8));
  if (end > bytes.length) return null;
  const header = bytes.toString('latin1', start, end);
  const [, type = ''] = /'descr':\s*'[<|=]?([^']*)'/.exec(header) ?? [];
  const sizes = /'fortran_order':\s*False.*'shape':\s*\(([\d, ]*)\)/.exec(header)?.[1]?.split(',');
  const shape = sizes?.filter((size) => size.trim() !== '').map(Number) ?? null;
  return { type, shape, end };
}
