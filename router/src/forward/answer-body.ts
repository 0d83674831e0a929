import { ChunkedReader } from '../wire/chunked.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import type { Sink } from '../wire/sink.ts';

/** Outcomes of handing on what one read brought, below zero so that a number of bytes can stand beside them. */
export const UNFINISHED = -1;
export const MALFORMED = -2;

/** The body of one answer on its way into a sink: follows its framing to where it ends (RFC 9112 section 6.3). */
export class AnswerBody {
  /** Only the end of the connection ends it. */
  readonly isUntilClose: boolean;
  readonly #sink: Sink;
  readonly #chunks: ChunkedReader | null;
  /** Bytes still to come where their number is known. */
  #left: number;

  constructor(head: ResponseHead, method: string, sink: Sink) {
    const isBodiless = head.hasNoBody(method);
    const isChunked = !isBodiless && head.isChunked;
    this.#sink = sink;
    this.#chunks = isChunked
      ? new ChunkedReader(sink.takesFraming, (bytes, start, end) => sink.body(bytes, start, end), false)
      : null;
    this.#left = isBodiless ? 0 : head.contentLength;
    this.isUntilClose = !isBodiless && !isChunked && head.contentLength < 0;
  }

  /** @returns how many bytes came beyond its end; `UNFINISHED`; or `MALFORMED`, with `refusal` saying why */
  read(bytes: Buffer, start: number, end: number): number {
    const chunks = this.#chunks;
    if (chunks !== null) {
      if (!chunks.read(bytes, start, end)) return MALFORMED;
      return chunks.end < 0 ? UNFINISHED : end - chunks.end;
    }
    if (this.isUntilClose) {
      if (end > start) this.#sink.body(bytes, start, end);
      return UNFINISHED;
    }
    const available = end - start;
    const taken = available < this.#left ? available : this.#left;
    if (taken > 0) this.#sink.body(bytes, start, start + taken);
    this.#left -= taken;
    return this.#left === 0 ? available - taken : UNFINISHED;
  }

  get refusal(): string {
    return this.#chunks?.refusal ?? '';
  }

  /** True when an event of a stream was just completed, and a chunk: another may be put in here. */
  get isBetweenEvents(): boolean {
    const chunks = this.#chunks;
    return chunks !== null && chunks.isBetweenChunks && chunks.isBetweenEvents;
  }
}
