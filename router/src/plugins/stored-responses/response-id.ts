import type { ResponseObserver } from '../../exchange.ts';
import { MemberFinder, keyIs, readString, scanMembers } from '../../kit/json-scan.ts';
import { EventSplitter, dataOf, joined } from '../../kit/sse.ts';

/** At most so much of a body or event is kept to find the id. */
const MAX_KEPT_BYTES = 1_048_576;

/**
 * Finds the id of a response of the Responses API: the member `id` of a body, or of the `response` in the first event that has one
 * (`response.created`, `response.completed` at the latest). Later bytes are not read.
 */
export const responseIdReader = (isStream: boolean, found: (id: string) => void): ResponseObserver =>
  isStream ? new StreamReader(found) : new BodyReader(found);

class BodyReader implements ResponseObserver {
  readonly #found: (id: string) => void;
  #pieces: Buffer[] = [];
  #bytes = 0;
  /** The body is scanned again when it has this many bytes. */
  #scanAt = 0;
  #isOver = false;

  constructor(found: (id: string) => void) {
    this.#found = found;
  }

  observe(bytes: Buffer, start: number, end: number): void {
    if (this.#isOver) return;
    const copy = Buffer.from(bytes.subarray(start, end));
    this.#pieces.push(copy);
    this.#bytes += copy.length;
    if (this.#bytes < this.#scanAt) return;
    this.#scanAt = 2 * this.#bytes;
    const all = this.#pieces.length === 1 ? copy : Buffer.concat(this.#pieces);
    this.#pieces = [all];
    const id = idIn(all, 0, all.length);
    this.#isOver = id !== null || this.#bytes > MAX_KEPT_BYTES;
    if (this.#isOver) this.#pieces = [];
    if (id !== null) this.#found(id);
  }
}

class StreamReader implements ResponseObserver {
  readonly #found: (id: string) => void;
  #events: EventSplitter | null = new EventSplitter(joined);

  constructor(found: (id: string) => void) {
    this.#found = found;
  }

  observe(bytes: Buffer, start: number, end: number): void {
    if (this.#events === null) return;
    for (const event of this.#events.pushCopy(bytes, start, end)) {
      const id = idOfEvent(event);
      if (id === null) continue;
      this.#events = null;
      return this.#found(id);
    }
    if (this.#events.heldBytes > MAX_KEPT_BYTES) this.#events = null;
  }
}

/** The engines write `id` first, so that a part of the body is enough. */
function idIn(bytes: Buffer, start: number, end: number): string | null {
  let id: string | null = null;
  scanMembers(bytes, start, end, (keyStart, keyEnd, valueStart, valueEnd) => {
    if (!keyIs(bytes, keyStart, keyEnd, 'id')) return true;
    id = readString(bytes, valueStart, valueEnd);
    return false;
  });
  return id;
}

const responseFinder = new MemberFinder(['response']);
const span = new Int32Array(2);

function idOfEvent(event: Buffer): string | null {
  const [start, end] = dataOf(event);
  if (start < 0 || responseFinder.find(event, start, end, span) < 0 || span[0]! < 0) return null;
  return idIn(event, span[0]!, span[1]!);
}
