import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { RoutedExperts } from '../../shared/turn.ts';

/** Readers of the number types that engines return. */
const readers: Readonly<Record<string, { bytes: number; read: (bytes: Buffer, at: number) => number }>> = {
  int64: { bytes: 8, read: (bytes, at) => Number(bytes.readBigInt64LE(at)) },
  int32: { bytes: 4, read: (bytes, at) => bytes.readInt32LE(at) },
  int16: { bytes: 2, read: (bytes, at) => bytes.readInt16LE(at) },
  uint16: { bytes: 2, read: (bytes, at) => bytes.readUInt16LE(at) },
  int8: { bytes: 1, read: (bytes, at) => bytes.readInt8(at) },
  uint8: { bytes: 1, read: (bytes, at) => bytes[at]! },
};

/**
 * Reads the numbers of a file of routed experts as int32, piece by piece.
 * @returns false: the file is missing, or differs from its record; nothing was read then
 */
export async function readExperts(
  { file, bytes, dtype, shape }: RoutedExperts,
  dataDir: string,
  take: (numbers: Int32Array) => void,
): Promise<boolean> {
  const reader = readers[(dtype ?? 'int32').replace(/^torch\./, '')];
  const path = join(dataDir, file);
  const count = (shape ?? []).reduce((product, size) => product * size, 1);
  if (reader === undefined || count * reader.bytes !== bytes) return false;
  const isHere = await stat(path).then(
    ({ size }) => size === bytes,
    () => false,
  );
  if (!isHere) return false;
  let rest: Buffer = Buffer.alloc(0);
  for await (const piece of createReadStream(path, { highWaterMark: 1_048_576 })) {
    const all = Buffer.concat([rest, piece as Buffer]);
    const whole = Math.floor(all.length / reader.bytes);
    take(Int32Array.from({ length: whole }, (_, i) => reader.read(all, i * reader.bytes)));
    rest = all.subarray(whole * reader.bytes);
  }
  return true;
}

/** SGLang names no shape: int32, a row for each token but the last. */
export function shapeOf({ shape, bytes }: RoutedExperts, tokens: number): readonly number[] | null {
  if (shape !== null) return shape;
  const rows = tokens - 1;
  const width = bytes / 4 / rows;
  return rows > 0 && Number.isInteger(width) && width > 0 ? [rows, width] : null;
}
