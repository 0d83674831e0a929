import type { Exchange } from '../exchange.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import { sendInParts } from '../wire/send-in-parts.ts';
import type { Sink } from '../wire/sink.ts';

/** Sends payload to a sink, in new chunks if the sink takes framing and the head of the response says so. */
export class PayloadOut {
  hasHead = false;
  readonly #inner: Sink;
  #isChunked = false;
  #gathered: Buffer[] = [];

  constructor(inner: Sink) {
    this.#inner = inner;
  }

  set isChunked(isChunked: boolean) {
    this.#isChunked = isChunked && this.#inner.takesFraming;
  }

  get isEmpty(): boolean {
    return this.#gathered.length === 0;
  }

  /** @param isFramed the body comes with chunk lines of its own, and past this */
  head(x: Exchange, head: ResponseHead, isFramed = false): void {
    this.isChunked = !isFramed && head.isChunked && head.contentLength < 0 && !head.hasNoBody(x.head.method);
    this.hasHead = true;
    x.headGoesTo(this.#inner);
    this.#inner.head(head);
  }

  /** Is sent with the next `send`. */
  add(bytes: Buffer): void {
    if (bytes.length > 0) this.#gathered.push(bytes);
  }

  /** All that was added, as one chunk. */
  send(): void {
    if (this.isEmpty) return;
    const body = Buffer.concat(this.#gathered);
    this.#gathered = [];
    this.#observe(body, 0, body.length);
    this.#pass(this.#isChunked ? Buffer.concat([chunkLine(body.length), body, CHUNK_END]) : body);
  }

  /** Sends all that was added, then `body` as one chunk, over several turns of the event loop. */
  sendLarge(body: Buffer, isWanted: () => boolean, done: () => void): void {
    this.send();
    if (!this.#isChunked) {
      sendInParts(this.#inner, body, isWanted, done);
      return;
    }
    this.#observe(body, 0, body.length);
    this.#pass(chunkLine(body.length));
    sendInParts(this.#inner, body, isWanted, () => {
      this.#pass(CHUNK_END);
      done();
    });
  }

  /** Sends all that was added, then a chunk. `bytes[start, end)` are valid during the call only. */
  pass(bytes: Buffer, start: number, end: number): void {
    this.send();
    if (start === end) return;
    this.#observe(bytes, start, end);
    if (this.#isChunked) this.#pass(chunkLine(end - start));
    this.#inner.body(bytes, start, end);
    if (this.#isChunked) this.#pass(CHUNK_END);
  }

  end(): void {
    this.send();
    if (this.#isChunked) this.#pass(LAST_CHUNK);
  }

  #observe(bytes: Buffer, start: number, end: number): void {
    if (this.#isChunked) this.#inner.payloadObserver?.(bytes, start, end);
  }

  #pass(bytes: Buffer): void {
    this.#inner.body(bytes, 0, bytes.length);
  }
}

const CHUNK_END = Buffer.from('\r\n');
const LAST_CHUNK = Buffer.from('0\r\n\r\n');

const chunkLine = (length: number): Buffer => Buffer.from(`${length.toString(16)}\r\n`);
