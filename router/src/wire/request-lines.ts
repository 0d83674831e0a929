/** A request line as it was read before. */
export interface RequestLine {
  /** From the method to the line's end. */
  readonly bytes: Buffer;
  readonly method: string;
  readonly target: string;
  readonly isHttp10: boolean;
}

/** Longer ones are not kept: they have something in them that changes. */
const MAX_KEPT_BYTES = 96;
const MAX_LINES = 4;
/** Of new lines one in so many is kept, so that those that never come again don't drive out the others. */
const KEPT_OF = 16;

const lines: RequestLine[] = [];
let seen = 0;

/**
 * The line at `bytes[start]`, where it is one of the few that clients send over and over; else null. To compare it is less work than to
 * read it, and its strings are the very same ones, which makes whatever is looked up by them cheap.
 */
export function knownLine(bytes: Buffer, start: number, end: number): RequestLine | null {
  for (const line of lines) if (beginsWith(bytes, start, end, line.bytes)) return line;
  return null;
}

/** A good line that was not known. */
export function noteLine(
  bytes: Buffer,
  start: number,
  end: number,
  { method, target, isHttp10 }: Omit<RequestLine, 'bytes'>,
): void {
  if (end - start > MAX_KEPT_BYTES || seen++ % KEPT_OF !== 0) return;
  const kept = { bytes: Buffer.from(bytes.subarray(start, end)), method, target, isHttp10 };
  lines[((seen / KEPT_OF) % MAX_LINES) | 0] = kept;
}

function beginsWith(bytes: Buffer, start: number, end: number, line: Buffer): boolean {
  if (end - start < line.length) return false;
  for (let i = 0; i < line.length; i++) if (bytes[start + i] !== line[i]) return false;
  return true;
}
