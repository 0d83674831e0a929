/** What becomes of an event that came in pieces. */
export type JoinPieces<Joined> = (pieces: readonly Buffer[], bytes: number) => Joined;

/** In one go. */
export const joined: JoinPieces<Buffer> = (pieces, bytes) => Buffer.concat(pieces, bytes);

/**
 * Cuts a stream of server-sent events at the empty lines that end them (WHATWG HTML section 9.2.6: lines end in LF, CR
 * or CRLF). Bytes are kept as they are: an event comes out with the line ends it came with.
 */
export class EventSplitter<Joined = Buffer> {
  readonly #join: JoinPieces<Joined>;
  /** The event that is not complete yet: put together once, as it may have 100 MB in many pieces. */
  #parts: Buffer[] = [];
  #bytes = 0;
  /** Its last bytes, as many as may be part of the empty line. */
  #tail: Buffer = NOTHING;

  constructor(join: JoinPieces<Joined>) {
    this.#join = join;
  }

  /** What has come of the event that is not complete yet. */
  get heldBytes(): number {
    return this.#bytes;
  }

  /** That, in its pieces. */
  get held(): readonly Buffer[] {
    return [...this.#parts];
  }

  /** @returns the events that are complete now, each with its closing empty line: parts of `bytes`, where it can be. */
  push(bytes: Buffer): (Buffer | Joined)[] {
    const before = this.#tail.length;
    return this.#cut(before === 0 ? bytes : Buffer.concat([this.#tail, bytes]), before);
  }

  /** As `push`, of `bytes[start, end)`, which are valid during the call only. */
  pushCopy(bytes: Uint8Array, start: number, end: number): (Buffer | Joined)[] {
    const before = this.#tail.length;
    const all = Buffer.allocUnsafe(before + end - start);
    all.set(this.#tail);
    all.set(bytes.subarray(start, end), before);
    return this.#cut(all, before);
  }

  /** @param before so many bytes of `all` were there already */
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
    // Of what belongs to an event that is over nothing counts any more.
    this.#tail = all.subarray(Math.max(events.length === 0 ? 0 : start, all.length - MAX_TAIL));
    return events;
  }

  /** What is left over at the end of the stream: an event that was never finished. */
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
/** Of the longest empty line, CRLF CRLF, all but the last byte. */
const MAX_TAIL = 3;
const LF = 10;
const CR = 13;
const DATA = Buffer.from('data:');

/** Where the data of an event stands that has it on one line; -1: it has not. */
export function dataOf(event: Buffer): readonly [start: number, end: number] {
  if (!event.subarray(0, DATA.length).equals(DATA) || event.includes('\ndata:')) return [-1, -1];
  const lineEnd = event.indexOf(LF);
  return [DATA.length, lineEnd < 0 ? event.length : lineEnd];
}

/** @returns the index after the two line ends at `i`; 0: none there; -1: can't be told yet. */
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
