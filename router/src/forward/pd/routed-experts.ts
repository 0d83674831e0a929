import { type NpyHead, readNpyHead } from '../../kit/npy.ts';

/**
 * The experts of each token (`--enable-return-routed-experts`), as vLLM returns them: a .npy file in base64. A decode engine does not
 * compute the prompt, so the first rows of its file are replaced by those of the prefill engine's.
 * @returns null: the files do not match
 */
export function joinedExperts(prefill: string, decode: string): string | null {
  const [first, all] = [Buffer.from(prefill, 'base64'), Buffer.from(decode, 'base64')];
  const [from, to] = [readNpyHead(first), readNpyHead(all)];
  if (from?.shape == null || to?.shape == null || from.type !== to.type) return null;
  const rowBytes = rowBytesOf(all, to);
  const isSameRow = String(from.shape.slice(1)) === String(to.shape.slice(1)) && rowBytes === rowBytesOf(first, from);
  if (!isSameRow || !Number.isInteger(rowBytes)) return null;
  const rows = Math.min(from.shape[0] ?? 0, to.shape[0] ?? 0);
  first.copy(all, to.end, from.end, from.end + rows * rowBytes);
  return all.toString('base64');
}

const rowBytesOf = (file: Buffer, { shape, end }: NpyHead): number => (file.length - end) / Math.max(1, shape![0] ?? 0);
