const MAGIC = Buffer.from('\x93NUMPY', 'latin1');
const SHAPE = /'shape':\s*\((\d+)(,[^)]*)\)/;
const KIND = /'descr':\s*'([^']+)',\s*'fortran_order':\s*False/;

/** A NumPy file of rows. */
interface Rows {
  /** What must be equal in two files whose rows can stand together: the type, and what a row is made of. */
  readonly kind: string;
  readonly count: number;
  readonly rowBytes: number;
  readonly start: number;
}

/**
 * Which experts every token went to (`--enable-return-routed-experts`), as vLLM writes it: a .npy file in base64. A decode engine
 * has not seen the prompt, so the first rows of its file are those of the prefill engine's.
 * @returns null: the two don't fit
 */
export function joinedExperts(prefill: string, decode: string): string | null {
  const [first, all] = [Buffer.from(prefill, 'base64'), Buffer.from(decode, 'base64')];
  const [from, to] = [rowsOf(first), rowsOf(all)];
  if (from === null || to === null || from.kind !== to.kind) return null;
  const bytes = Math.min(from.count, to.count) * to.rowBytes;
  first.copy(all, to.start, from.start, from.start + bytes);
  return all.toString('base64');
}

/** NEP 1: magic, version, length of the header in two bytes (four from version 2 on), header, data. */
function rowsOf(file: Buffer): Rows | null {
  if (file.length < 12 || !file.subarray(0, MAGIC.length).equals(MAGIC)) return null;
  const isLong = file[6]! > 1;
  const headerStart = isLong ? 12 : 10;
  const start = headerStart + (isLong ? file.readUInt32LE(8) : file.readUInt16LE(8));
  if (start > file.length) return null;
  const header = file.toString('latin1', headerStart, start);
  const shape = SHAPE.exec(header);
  const kind = KIND.exec(header);
  if (shape === null || kind === null) return null;
  const count = Number(shape[1]);
  const rowBytes = (file.length - start) / Math.max(1, count);
  return Number.isInteger(rowBytes) ? { kind: `${kind[1]} ${shape[2]} ${rowBytes}`, count, rowBytes, start } : null;
}
