export type JoinPieces<Joined> = (pieces: readonly Buffer[], bytes: number) => Joined;

export const joined: JoinPieces<Buffer> = (pieces, bytes) => Buffer.concat(pieces, bytes);

const IN_LINE = 0;
/** After the end of a line, and at the beginning of the next one. */
const AT_LINE = 1;
/** After a CR: an LF would belong to it. */
const AFTER_CR = 2;
/** After the CR of an empty line. */
const AFTER_EMPTY_CR = 3;

/**
 * Finds the ends of server-sent events: the empty lines that end them (WHATWG HTML section 9.2.6: lines end in LF, CR or CRLF), wherever
 * the pieces begin that a stream comes in.
 */
export class EventEnds {
  #state = IN_LINE;

  /** @returns the index after each event that ends in this piece of a stream; 0 where its first byte only shows that one has ended */
  in(piece: Uint8Array): number[] {
    const ends: number[] = [];
    let state = this.#state;
    let lf = piece.indexOf(LF);
    let cr = piece.indexOf(CR);
    for (let at = 0; at < piece.length;) {
      if (state === IN_LINE) {
        if (lf >= 0 && lf < at) lf = piece.indexOf(LF, at);
        if (cr >= 0 && cr < at) cr = piece.indexOf(CR, at);
        if (lf < 0 && cr < 0) break;
        const isLf = cr < 0 || (lf >= 0 && lf < cr);
        state = isLf ? AT_LINE : AFTER_CR;
        at = (isLf ? lf : cr) + 1;
        continue;
      }
      const isLf = piece[at] === LF;
      if (state === AFTER_EMPTY_CR || (state === AT_LINE && isLf)) {
        if (isLf) at++;
        ends.push(at);
        state = IN_LINE;
      } else if (isLf || piece[at] === CR) {
        state = isLf ? AT_LINE : AFTER_EMPTY_CR;
        at++;
      } else state = IN_LINE;
    }
    this.#state = state;
    return ends;
  }

  reset(): void {
    this.#state = IN_LINE;
  }
}

/** Splits a stream of server-sent events. Events keep their line ends. */
export class EventSplitter<Joined = Buffer> {
  readonly #join: JoinPieces<Joined>;
  readonly #ends = new EventEnds();
  /** The incomplete event, joined once, because it may have 100 MB in many pieces. */
  #parts: Buffer[] = [];
  #bytes = 0;

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
    const events: (Buffer | Joined)[] = [];
    let start = 0;
    for (const end of this.#ends.in(bytes)) {
      events.push(this.#whole(bytes.subarray(start, end)));
      start = end;
    }
    if (start < bytes.length) {
      this.#parts.push(start === 0 ? bytes : bytes.subarray(start));
      this.#bytes += bytes.length - start;
    }
    return events;
  }

  /** As `push`, for `bytes[start, end)` that are valid only during the call. */
  pushCopy(bytes: Uint8Array, start: number, end: number): (Buffer | Joined)[] {
    return this.push(Buffer.from(bytes.subarray(start, end)));
  }

  /** The incomplete event at the end of the stream. */
  end(): Buffer | Joined {
    this.#ends.reset();
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
const LF = 10;
const CR = 13;
const OPEN_OBJECT = 0x7b;
const SPACE = 0x20;
const DATA = Buffer.from('data:');
const LATER_DATA = Buffer.from('\ndata:');

/** The span of the data in an event with one data line, which may come after others (`event:`, a comment); -1 otherwise. */
export function dataOf(event: Buffer): readonly [start: number, end: number] {
  const isFirst = event.subarray(0, DATA.length).equals(DATA);
  const before = isFirst ? 0 : event.indexOf(LATER_DATA) + 1;
  if ((!isFirst && before === 0) || event.includes(LATER_DATA, before)) return [-1, -1];
  const start = before + DATA.length;
  const lineEnd = event.indexOf(LF, start);
  return [start, lineEnd < 0 ? event.length : lineEnd];
}

/** Where the objects in the events of a stream begin, which each have on one line. A line that is not complete is left out. */
export function objectStarts(bytes: Buffer): number[] {
  const starts: number[] = [];
  for (let at = 0, end = bytes.indexOf(LF); end >= 0; at = end + 1, end = bytes.indexOf(LF, at)) {
    if (bytes.compare(DATA, 0, DATA.length, at, Math.min(at + DATA.length, bytes.length)) !== 0) continue;
    let start = at + DATA.length;
    while (start < end && bytes[start]! <= SPACE) start++;
    // Not the "[DONE]" that ends a stream.
    if (bytes[start] === OPEN_OBJECT) starts.push(start);
  }
  return starts;
}
