import { errorFormatOf, normalPath } from '../classify/classify.ts';
import type { Exchange } from '../exchange.ts';
import { sendError } from '../forward/errors.ts';
import type { ErrorCode } from '../kit/errors.ts';
import type { ExchangeView } from '../phases/exchange-view.ts';
import type { Pipeline } from '../pipeline.ts';
import { BufferSink } from '../wire/buffer-sink.ts';
import { RequestBody, type RetryBudget } from '../wire/request-body.ts';
import { RequestHead } from '../wire/request-head.ts';
import { CLIENT_LEFT, refusalError } from '../wire/result.ts';

/** A request of code in the router's process. */
export interface DispatchRequest {
  /** Default: POST with a body, GET without one. */
  readonly method?: string;
  /** Path and query, for example `/v1/chat/completions`. */
  readonly path: string;
  /** Header fields. The fields that frame the request are set by the router. */
  readonly headers?: ConstructorParameters<typeof Headers>[0];
  /**
   * The bytes are not copied and must not be changed before the response has ended. Of an iterable, the next part is asked for when
   * there is room for it.
   */
  readonly body?: string | Uint8Array | AsyncIterable<Uint8Array>;
  /** Aborts the request at any time, as a client that disconnects: its engine stops generating. */
  readonly signal?: AbortSignal;
  /** The request needs no API key and may be a control request. Default false: keys are checked as for a client's request. */
  readonly isTrusted?: boolean;
  /** Called with the request before its first phase: sets the state that a plugin of the caller reads, and may set what `classify` may set. */
  prepare?(x: ExchangeView): void;
}

export interface DispatchResponse {
  readonly status: number;
  readonly headers: Headers;
  /**
   * The payload as it arrives, for one reader. The router reads from the engine no faster than the parts are taken, so a response must be
   * read to its end or left: leaving the loop aborts the request. Throws a `DispatchError` if the response is truncated, and the reason of
   * the signal if that aborts the request.
   */
  readonly body: AsyncIterable<Buffer>;
  /** The whole payload. Rejects as `body` throws, and with a `RangeError` if there are more than `maxBytes` (default: 256 MiB). */
  bytes(maxBytes?: number): Promise<Buffer>;
}

/**
 * Sends a request of code in the router's process the way of a client's request: policies, retries, plugins, capture, metrics and logs
 * included. Resolves when the response begins; a refusal is a response with its status and `x-turnout-error`. Rejects if the signal aborts
 * the request before that, or if the body's iterable throws.
 *
 * @example
 * const response = await router.dispatch({ path: '/v1/completions', body: JSON.stringify({ model, prompt, stream: true }) });
 * for await (const part of response.body) process.stdout.write(part);
 */
export type Dispatch = (request: DispatchRequest) => Promise<DispatchResponse>;

/** A dispatched request whose response is truncated. */
export class DispatchError extends Error {
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** Payload that may wait for its reader before the engine is paused. */
const MAX_WAITING_BYTES = 65_536;
const MAX_BYTES = 268_435_456;

/** Takes requests of code in this process into the pipeline. */
export class Dispatcher {
  readonly #retryBudget: RetryBudget;
  #pipeline: Pick<Pipeline, 'dispatch'> | null = null;

  constructor(retryBudget: RetryBudget) {
    this.#retryBudget = retryBudget;
  }

  /** Until then no request is taken: plugins get `dispatch` before there is a pipeline. */
  connect(pipeline: Pick<Pipeline, 'dispatch'>): void {
    this.#pipeline = pipeline;
  }

  readonly dispatch: Dispatch = async (request) => {
    if (this.#pipeline === null) throw new Error('The router has not started: it takes no requests yet.');
    request.signal?.throwIfAborted();
    const call = new Call(request.signal ?? null);
    const head = headOf(request);
    if (head.refusal !== null)
      sendError(call.sink, refusalError(head.refusal), errorFormatOf(normalPath(request.path)));
    else {
      const body = new RequestBody(this.#retryBudget, (isPaused) => call.pauseBody(isPaused));
      const { body: sent = '' } = request;
      const isStream = typeof sent !== 'string' && !(sent instanceof Uint8Array);
      if (!isStream) {
        if (sent.length > 0) body.push(bufferOf(sent));
        body.finish();
      }
      call.begin(this.#pipeline.dispatch(head, body, call.sink, (x) => request.prepare?.(x)));
      if (isStream) void call.send(sent, body);
    }
    return call.response();
  };
}

class Call {
  readonly sink = new BufferSink({ maxWaitingBytes: MAX_WAITING_BYTES, onChange: () => this.#changed() });
  readonly #signal: AbortSignal | null;
  /** null: the request was refused before it became an exchange. */
  #x: Exchange | null = null;
  /** Thrown to the caller in place of the (rest of the) response. */
  #failure: { readonly reason: unknown } | null = null;
  #isBodyPaused = false;
  #waiting: (() => void)[] = [];

  constructor(signal: AbortSignal | null) {
    this.#signal = signal;
  }

  begin(x: Exchange): void {
    this.#x = x;
    // A request that was refused at once has its response already.
    if (!this.#isOver) this.#signal?.addEventListener('abort', this.#onAbort);
  }

  pauseBody(isPaused: boolean): void {
    this.#isBodyPaused = isPaused;
    this.#changed();
  }

  async send(parts: AsyncIterable<Uint8Array>, body: RequestBody): Promise<void> {
    try {
      for await (const part of parts) {
        if (this.#isOver) return;
        if (part.length > 0) body.push(bufferOf(part));
        while (this.#isBodyPaused && !this.#isOver) await this.#change();
      }
      if (!this.#isOver) body.finish();
    } catch (error) {
      this.#abort(error);
    }
  }

  async response(): Promise<DispatchResponse> {
    while (this.sink.response === null && this.#failure === null) await this.#change();
    if (this.#failure !== null) throw this.#failure.reason;
    const head = this.sink.response!;
    const headers = new Headers(head.pairs());
    const { requestId = '' } = this.#x?.head ?? {};
    if (requestId !== '' && !headers.has('x-request-id')) headers.set('x-request-id', requestId);
    const body = this.#payload();
    return { status: head.status, headers, body, bytes: (maxBytes = MAX_BYTES) => whole(body, maxBytes) };
  }

  async *#payload(): AsyncGenerator<Buffer, void> {
    try {
      for (;;) {
        if (this.#failure !== null) throw this.#failure.reason;
        const parts = this.sink.take();
        if (parts.length > 0) yield* parts;
        else if (this.sink.state === 'complete') return;
        else if (this.sink.state === 'cut') {
          const { code = 'upstream_reset', message = 'The response is truncated.' } = this.#x?.error ?? {};
          throw new DispatchError(code, message);
        } else await this.#change();
      }
    } finally {
      this.#abort(null);
    }
  }

  get #isOver(): boolean {
    return this.#failure !== null || this.sink.state !== 'open' || (this.#x !== null && this.#x.outcome !== null);
  }

  readonly #onAbort = (): void => this.#abort(this.#signal!.reason);

  /** No effect on a request that has ended. */
  #abort(reason: unknown): void {
    if (this.#isOver) return;
    this.#failure = { reason };
    this.#x?.ended(this, CLIENT_LEFT);
    this.#changed();
  }

  #change(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  #changed(): void {
    if (this.#isOver) this.#signal?.removeEventListener('abort', this.#onAbort);
    for (const wake of this.#waiting.splice(0)) wake();
  }
}

async function whole(body: AsyncIterable<Buffer>, maxBytes: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of body) {
    bytes += part.length;
    if (bytes > maxBytes) throw new RangeError(`The response has more than ${maxBytes} bytes.`);
    parts.push(part);
  }
  return Buffer.concat(parts, bytes);
}

const bufferOf = (part: string | Uint8Array): Buffer =>
  typeof part === 'string' ? Buffer.from(part) : Buffer.from(part.buffer, part.byteOffset, part.byteLength);

/** Fields that frame a request or concern its connection: there is no connection. */
const framing = [
  'connection',
  'content-length',
  'expect',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
];

/** With the checks of a listener. */
function headOf({ method, path, headers, body, isTrusted = false }: DispatchRequest): RequestHead {
  const head = new RequestHead();
  const line = `${method ?? (body === undefined ? 'GET' : 'POST')} ${path}`;
  if (!/^[\x21-\x7e]+ [\x21-\x7e]+$/.test(line)) {
    head.refusal = { status: 400, message: 'The method or path of the request has a character that is not allowed.' };
    return head;
  }
  const fields = new Headers(headers);
  for (const name of framing) fields.delete(name);
  if (!fields.has('host')) fields.set('host', 'localhost');
  if (typeof body === 'string') fields.set('content-length', String(Buffer.byteLength(body)));
  else if (body instanceof Uint8Array) fields.set('content-length', String(body.length));
  else if (body !== undefined) fields.set('transfer-encoding', 'chunked');
  const lines = Array.from(fields, ([name, value]) => `${name}: ${value}\r\n`).join('');
  const bytes = Buffer.from(`${line} HTTP/1.1\r\n${lines}\r\n`, 'latin1');
  const end = head.read(bytes, 0, bytes.length);
  if (end < 0) head.refusal ??= { status: 400, message: 'The request has no valid head.' };
  head.isTrusted = isTrusted;
  return head;
}
