import { type ResponseHead, ownStreamHead } from '../wire/response-head.ts';
import type { Sink, Source } from '../wire/sink.ts';
import { readObject, toJson, writeObject } from './raw-json.ts';

const COMMENT = Buffer.from(': the engine works on it\n\n');
const CHUNK_END = Buffer.from('\r\n');
const LAST_CHUNK = Buffer.from('0\r\n\r\n');

/**
 * The sink of a stream that is made of a whole response of an engine. Until that begins, the client gets comments, so that nothing
 * between takes its connection for dead. After the first comment an error is an event: the status is out.
 */
export class KeepAliveSink implements Sink {
  readonly #inner: Sink;
  #timer: NodeJS.Timeout | null = null;
  #hasBegun = false;
  #isChunked = false;
  /** The body of an error that will be an event; null: the response is none. */
  #error: { readonly status: number; readonly parts: Buffer[] } | null = null;

  constructor(inner: Sink) {
    this.#inner = inner;
  }

  /** A whole response is awaited. */
  start(intervalMs: number): void {
    if (intervalMs > 0) this.#timer ??= setInterval(() => this.#comment(), intervalMs).unref();
  }

  /** No more comments: the request is over. */
  stop(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  get takesFraming(): boolean {
    return !this.#hasBegun && this.#inner.takesFraming;
  }

  get source(): Source | null {
    return this.#inner.source;
  }

  set source(source: Source | null) {
    this.#inner.source = source;
  }

  head(head: ResponseHead): void {
    this.stop();
    if (!this.#hasBegun) this.#inner.head(head);
    else if (head.status !== 200) this.#error = { status: head.status, parts: [] };
  }

  body(bytes: Uint8Array, start: number, end: number): void {
    if (!this.#hasBegun) this.#inner.body(bytes, start, end);
    else if (this.#error !== null) this.#error.parts.push(Buffer.from(bytes.subarray(start, end)));
    else this.#chunk(bytes, start, end);
  }

  flush(): boolean {
    return this.#inner.flush();
  }

  takeBack(): boolean {
    return !this.#hasBegun && this.#inner.takeBack?.() === true;
  }

  end(): void {
    if (this.#error !== null) {
      const event = eventOf(this.#error.status, Buffer.concat(this.#error.parts));
      this.#chunk(event, 0, event.length);
    }
    if (this.#hasBegun && this.#isChunked) this.#inner.body(LAST_CHUNK, 0, LAST_CHUNK.length);
    this.#inner.end();
  }

  cut(reason: string, finalEvent: string): void {
    this.stop();
    this.#inner.cut(reason, finalEvent);
  }

  #comment(): void {
    if (!this.#hasBegun) {
      this.#isChunked = this.#inner.takesFraming;
      this.#hasBegun = true;
      const fields = 'content-type: text/event-stream; charset=utf-8\r\n';
      this.#inner.head(ownStreamHead(200, 'OK', fields, this.#isChunked));
    }
    this.#chunk(COMMENT, 0, COMMENT.length);
    this.#inner.flush();
  }

  #chunk(bytes: Uint8Array, start: number, end: number): void {
    if (start === end) return;
    const line = Buffer.from(`${(end - start).toString(16)}\r\n`);
    if (this.#isChunked) this.#inner.body(line, 0, line.length);
    this.#inner.body(bytes, start, end);
    if (this.#isChunked) this.#inner.body(CHUNK_END, 0, CHUNK_END.length);
  }
}

/** Clients of Fireworks retry by the status in the error. */
function eventOf(status: number, body: Buffer): Buffer {
  const top = readObject(body);
  const error = readObject(top?.get('error') ?? body) ?? new Map([['message', toJson(body.toString())]]);
  const event = writeObject([['error', writeObject(error.set('status', toJson(status)))]]);
  return Buffer.concat([Buffer.from('data: '), event, Buffer.from('\n\n')]);
}
