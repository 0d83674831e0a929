/** Joins the pieces of an event. */
export type JoinPieces<Joined> = (pieces: readonly Buffer[], bytes: number) => Joined;

/** In one step. */
export const joined: JoinPieces<Buffer> = (pieces, bytes) => Buffer.concat(pieces, bytes);

/**
 * Splits a stream of server-sent events at the empty lines that end them (WHATWG HTML section 9.2.6: lines end in LF,
 * CR or CRLF). Events keep their line ends.
 */
export class EventSplitter<Joined = Buffer> {
  readonly #join: JoinPieces<Joined>;
  /** The incomplete event, joined once, because it may have 100 MB in many pieces. */
  #parts: Buffer[] = [];
  #bytes = 0;
  /** Its last bytes, which may be part of the empty line. */
  #tail: Buffer = NOTHING;

  constructor(join: JoinPieces<Joined>) {
    this.#join = join;
  }

  /** Bytes of the incomplete event. */
  get heldBytes(): number {
    return this.#bytes;
  }

  /** The incomplete event in pieces. */
  get held(): readonly Buffer[] {
    return [...this.#parts];
  }

  /** @returns the events that are now complete, each with its empty line, as parts of `bytes` if possible */
  push(bytes: Buffer): (Buffer | Joined)[] {
    const before = this.#tail.length;
    return this.#cut(before === 0 ? bytes : Buffer.concat([this.#tail, bytes]), before);
  }

  /** As `push`, for `bytes[start, end)` that are valid only during the call. */
  pushCopy(bytes: Uint8Array, start: number, end: number): (Buffer | Joined)[] {
    const before = this.#tail.length;
    const all = Buffer.allocUnsafe(before + end - start);
    all.set(this.#tail);
    all.set(bytes.subarray(start, end), before);
    return this.#cut(all, before);
  }

  /** @param before bytes at the start of `all` that were there already */
  #cut(all: Buffer, before: number): (Buffer | Joined)[] {
    const events: (Buffer | Joined)[] = [];
    let start = before;
    let lf = all.indexOf(LF);
    let cr = all.indexOf(CR);
    for (let i = 0; lf >= 0 || cr >= 0;) {
      i = lf < 0 ? cr : cr < 0 ? lf : Math.min(lf, cr);
      const end = emptyLineEnd(all, i);
      if (end < 0) break;
      if (end > 0) {
        events.push(this.#whole(all.subarray(start, end)));
        start = end;
      }
      i = Math.max(end, i + 1);
      if (lf >= 0 && lf < i) lf = all.indexOf(LF, i);
      if (cr >= 0 && cr < i) cr = all.indexOf(CR, i);
    }
    if (start < all.length) {
      this.#parts.push(all.subarray(start));
      this.#bytes += all.length - start;
    }
    // Only bytes of the current event may be part of its empty line.
    this.#tail = all.subarray(Math.max(events.length === 0 ? 0 : start, all.length - MAX_TAIL));
    return events;
  }

  /** The rest at the end of the stream: an incomplete event. */
  end(): Buffer | Joined {
    this.#tail = NOTHING;
    return this.#whole(NOTHING);
  }

  #whole(last: Buffer): Buffer | Joined {
    const pieces = this.#parts;
    if (pieces.length === 0) return last;
    pieces.push(last);
    const bytes = this.#bytes + last.length;
    this.#parts = [];
    this.#bytes = 0;
    return this.#join(pieces, bytes);
  }
}

const NOTHING = Buffer.alloc(0);
/** The longest empty line, CRLF CRLF, without its last byte. */
const MAX_TAIL = 3;
const LF = 10;
const CR = 13;
const DATA = Buffer.from('data:');

/** The span of the data in an event with one data line; -1 otherwise. */
export function dataOf(event: Buffer): readonly [start: number, end: number] {
  if (!event.subarray(0, DATA.length).equals(DATA) || event.includes('\ndata:')) return [-1, -1];
  const lineEnd = event.indexOf(LF);
  return [DATA.length, lineEnd < 0 ? event.length : lineEnd];
}

/** The data of the events in a stream's text, which each have on one line. A line that is not complete is left out. */
export const dataLines = (text: string): string[] =>
  text
    .slice(0, text.lastIndexOf('\n') + 1)
    .split('\n')
    .filter((line) => line.startsWith('data:'))
    .map((line) => line.slice('data:'.length).trim());

/** @returns the index after the two line ends at `i`; 0: none there; -1: not known yet */
function emptyLineEnd(bytes: Buffer, i: number): number {
  const first = lineEnd(bytes, i);
  if (first <= 0) return first;
  if (first >= bytes.length) return -1;
  return lineEnd(bytes, first);
}

function lineEnd(bytes: Buffer, i: number): number {
  if (bytes[i] === LF) return i + 1;
  if (bytes[i] !== CR) return 0;
  if (i + 1 >= bytes.length) return -1;
  return bytes[i + 1] === LF ? i + 2 : i + 1;
}
