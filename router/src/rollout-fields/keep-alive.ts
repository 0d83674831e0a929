import { Json } from '../kit/json-members.ts';
import { PayloadOut } from '../phases/payload-out.ts';
import { PassingSink } from '../wire/passing-sink.ts';
import { type ResponseHead, ownStreamHead } from '../wire/response-head.ts';
import type { Sink } from '../wire/sink.ts';
import { type RawObject, membersOf, toJson, writeObject } from './raw-json.ts';

const COMMENT = Buffer.from(': the engine works on it\n\n');

/**
 * The sink of a stream that is made from a complete response of an engine. Until that begins, the client gets comments, so that proxies
 * keep the connection open. After the first comment an error is sent as an event, because the status was sent.
 */
export class KeepAliveSink extends PassingSink {
  readonly #out: PayloadOut;
  #timer: NodeJS.Timeout | null = null;
  #isOver = false;
  #hasBegun = false;
  /** The error that will be sent as an event; null: the response is not an error. */
  #error: { readonly status: number; readonly parts: Buffer[] } | null = null;

  constructor(inner: Sink) {
    super(inner);
    this.#out = new PayloadOut(inner);
    this.#out.isChunked = true;
  }

  /** The engine's response is awaited. */
  start(intervalMs: number): void {
    // What is known of the model may come after the end of its request.
    if (intervalMs > 0 && !this.#isOver) this.#timer ??= setInterval(() => this.#comment(), intervalMs).unref();
  }

  /** No more comments: the response has begun, or the request is over. */
  stop(): void {
    this.#isOver = true;
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  override get takesFraming(): boolean {
    return !this.#hasBegun && super.takesFraming;
  }

  override head(head: ResponseHead): void {
    this.stop();
    if (!this.#hasBegun) this.inner.head(head);
    else if (head.status !== 200) this.#error = { status: head.status, parts: [] };
  }

  override body(bytes: Buffer, start: number, end: number): void {
    if (!this.#hasBegun) this.inner.body(bytes, start, end);
    else if (this.#error !== null) this.#error.parts.push(Buffer.from(bytes.subarray(start, end)));
    else this.#out.pass(bytes, start, end);
  }

  override takeBack(): boolean {
    return !this.#hasBegun && super.takeBack();
  }

  override end(): void {
    if (this.#error !== null) {
      const event = eventOf(this.#error.status, Buffer.concat(this.#error.parts));
      this.#out.add(event);
    }
    if (this.#hasBegun) this.#out.end();
    this.inner.end();
  }

  override cut(reason: string, finalEvent: string): void {
    this.stop();
    super.cut(reason, finalEvent);
  }

  #comment(): void {
    if (!this.#hasBegun) {
      this.#hasBegun = true;
      const fields = 'content-type: text/event-stream; charset=utf-8\r\n';
      this.inner.head(ownStreamHead(200, 'OK', fields, this.inner.takesFraming));
    }
    this.#out.pass(COMMENT, 0, COMMENT.length);
    this.inner.flush();
  }
}

/** Clients of Fireworks retry by the status in the error. */
function eventOf(status: number, body: Buffer): Buffer {
  const top = Json.object(body);
  const said = top?.get('error') ?? top;
  const error: RawObject = said?.isObject === true ? membersOf(said) : new Map([['message', toJson(body.toString())]]);
  const event = writeObject([['error', writeObject(error.set('status', toJson(status)))]]);
  return Buffer.concat([Buffer.from('data: '), event, Buffer.from('\n\n')]);
}
