/**
 * Cuts a stream of server-sent events at the empty lines that end them (WHATWG HTML section 9.2.6: lines end in LF, CR
 * or CRLF). Bytes are kept as they are: an event comes out with the line ends it came with.
 */
export class EventSplitter {
  #rest: Buffer = Buffer.alloc(0);
  /** Where in `#rest` to go on looking. */
  #seen = 0;

  /** @returns the events that are complete now, each with its closing empty line. */
  push(bytes: Buffer): Buffer[] {
    const all = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    const events: Buffer[] = [];
    let start = 0;
    let i = this.#seen;
    while (i < all.length) {
      const end = emptyLineEnd(all, i);
      if (end === 0) i++;
      else if (end < 0) break;
      else {
        events.push(all.subarray(start, end));
        start = end;
        i = end;
      }
    }
    this.#rest = all.subarray(start);
    this.#seen = Math.max(0, i - start);
    return events;
  }

  /** What is left over at the end of the stream: an event that was never finished. */
  end(): Buffer {
    const rest = this.#rest;
    this.#rest = Buffer.alloc(0);
    this.#seen = 0;
    return rest;
  }
}

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
