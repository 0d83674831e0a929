import { BufferSink } from '../wire/buffer-sink.ts';
import { ChunkedReader } from '../wire/chunked.ts';
import { ResponseHead } from '../wire/response-head.ts';
import type { Sink } from '../wire/sink.ts';

/** Results of a read; negative, because other results are numbers of bytes. */
export const UNFINISHED = -1;
export const MALFORMED = -2;

/** Passes the body of a response to a sink and finds its end by its framing (RFC 9112 section 6.3). */
export class AnswerBody {
  /** The body ends with the connection. */
  readonly isUntilClose: boolean;
  readonly #sink: Sink;
  readonly #chunks: ChunkedReader | null;
  /** Bytes that are missing, if the length is known. */
  #left: number;

  constructor(head: ResponseHead, method: string, sink: Sink) {
    const isBodiless = head.hasNoBody(method);
    const isChunked = !isBodiless && head.isChunked;
    this.#sink = sink;
    this.#chunks = isChunked
      ? new ChunkedReader(
          sink.takesFraming,
          (bytes, start, end) => sink.body(bytes, start, end),
          false,
          sink.payloadObserver,
        )
      : null;
    this.#left = isBodiless ? 0 : head.contentLength;
    this.isUntilClose = !isBodiless && !isChunked && head.contentLength < 0;
  }

  /** @returns the number of bytes after its end; `UNFINISHED`; or `MALFORMED`, with the reason in `refusal` */
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

  /** Chunks that began so far; -1: the body has none. */
  get chunks(): number {
    return this.#chunks?.chunks ?? -1;
  }

  get refusal(): string {
    return this.#chunks?.refusal ?? '';
  }

  /** True between two events of a stream and two chunks: the router may insert one. */
  get isBetweenEvents(): boolean {
    const chunks = this.#chunks;
    return chunks !== null && chunks.isBetweenChunks && chunks.isBetweenEvents;
  }
}

/** Whether a response is complete if its connection ends now. One that ends with its connection has at least a byte of its body. */
export function isWhole(response: Buffer, method: string): boolean {
  const head = new ResponseHead();
  const bodyStart = head.read(response, 0, response.length);
  const body = new AnswerBody(head, method, new BufferSink({ maxBytes: 0 }));
  if (body.isUntilClose) return response.length > bodyStart;
  return body.read(response, bodyStart, response.length) >= 0;
}
