import { type Socket, connect } from 'node:net';
import { WireBody, type WireHead, chunk, readWireHead } from '../../harness/message.ts';
import { requestBody } from './content.ts';
import type { ClientEnd, Journal, RequestRecord } from './journal.ts';

/** What a client does, drawn by chance before it begins. */
export interface Plan {
  readonly path: string;
  readonly session: string;
  readonly size: number;
  readonly stream: boolean;
  readonly isChunked: boolean;
  /** It leaves after so many ms if it has no end by then; 0: it stays. */
  readonly leavesAfterMs: number;
  /** It takes a pause of so long in the middle of reading; 0: none. */
  readonly pausesMs: number;
  /** The request goes out in so many writes. */
  readonly parts: number;
  readonly lastTurn: boolean;
}

/** One connection to the router, which writes and reads bytes itself. */
export class ClientSocket {
  readonly #socket: Socket;
  readonly #journal: Journal;
  readonly #patienceMs: number;
  #pending: Buffer = Buffer.alloc(0);
  #head: WireHead | null = null;
  #body: WireBody | null = null;
  #bytes = 0;
  #record: RequestRecord | null = null;
  #resolve: ((end: ClientEnd) => void) | null = null;
  #timers: NodeJS.Timeout[] = [];
  #isFramedByClose = false;
  #pausesMs = 0;
  isUsable = true;
  /** From the last byte of the request, handed to the system, to the end of the answer. */
  lastMs = 0;
  #sentMs = 0;

  /** `patienceMs`: a client without an end for so long has lost its request. */
  constructor(port: number, journal: Journal, patienceMs: number) {
    this.#journal = journal;
    this.#patienceMs = patienceMs;
    this.#socket = connect({ host: '127.0.0.1', port, noDelay: true, allowHalfOpen: true });
    this.#socket.setDefaultEncoding('latin1');
    this.#socket.on('data', (bytes: Buffer) => this.#onBytes(bytes));
    this.#socket.on('end', () => {
      this.#onEnd(false);
      this.#socket.destroy();
    });
    this.#socket.on('error', () => this.#onEnd(true));
    this.#socket.on('close', () => this.#onEnd(true));
  }

  close(): void {
    this.isUsable = false;
    this.#socket.destroy();
  }

  /** Resolves when the request is over for the client, and the journal knows how. */
  async ask(plan: Plan): Promise<ClientEnd> {
    const record = this.#journal.begin(performance.now());
    const { promise, resolve } = Promise.withResolvers<ClientEnd>();
    this.#record = record;
    this.#resolve = resolve;
    this.#head = this.#body = null;
    this.#bytes = 0;
    this.#isFramedByClose = false;
    this.#pausesMs = plan.pausesMs;
    this.#timers.push(setTimeout(() => this.#finish({ kind: 'nothing' }), this.#patienceMs));
    if (plan.leavesAfterMs > 0) this.#timers.push(setTimeout(() => this.#finish({ kind: 'left' }), plan.leavesAfterMs));
    this.#send(record.id, plan);
    return promise;
  }

  #send(id: number, plan: Plan): void {
    const { session, size, stream, isChunked, parts } = plan;
    const body = requestBody({ id, session, size, stream });
    const framing = isChunked ? 'transfer-encoding: chunked' : `content-length: ${body.length}`;
    const fields = ['host: chaos', `x-chaos-id: ${id}`, `x-session-id: ${session}`, 'content-type: application/json'];
    if (plan.lastTurn) fields.push('x-turnout-session-end: 1');
    const head = `POST ${plan.path} HTTP/1.1\r\n${fields.join('\r\n')}\r\n${framing}\r\n\r\n`;
    const half = Math.floor(body.length / 2);
    const wire = head + (isChunked ? `${chunk(body.slice(0, half))}${chunk(body.slice(half))}0\r\n\r\n` : body);
    const step = Math.ceil(wire.length / parts);
    const write = (n: number): void => {
      if (this.#socket.destroyed || this.#record?.id !== id) return;
      this.#sentMs = performance.now();
      // A new connection sends when it is there.
      this.#socket.write(wire.slice(n * step, (n + 1) * step), () => {
        if (this.#record?.id === id) this.#sentMs = performance.now();
      });
      if (n + 1 < parts) this.#timers.push(setTimeout(write, 10, n + 1));
    };
    write(0);
  }

  #finish(end: ClientEnd): void {
    const record = this.#record;
    if (record === null) return;
    this.#record = null;
    for (const timer of this.#timers.splice(0)) clearTimeout(timer);
    this.#socket.resume();
    const nowMs = performance.now();
    this.lastMs = nowMs - this.#sentMs;
    this.#journal.end(record, end, nowMs);
    if (end.kind !== 'whole') this.close();
    this.#resolve!(end);
  }

  #onBytes(bytes: Buffer): void {
    if (this.#record === null) {
      // After its own hang-up a client hears nothing; what comes now is one answer too many.
      if (this.isUsable)
        this.#journal.complain(`duplicated: a client without a request got ${bytes.toString('latin1', 0, 200)}`);
      this.close();
      return;
    }
    this.#bytes += bytes.length;
    if (this.#pausesMs > 0) {
      this.#socket.pause();
      this.#timers.push(setTimeout(() => this.#socket.resume(), this.#pausesMs));
      this.#pausesMs = 0;
    }
    let rest = bytes;
    if (this.#body === null) {
      this.#pending = Buffer.concat([this.#pending, bytes]);
      const head = readWireHead(this.#pending);
      if (head === null) return;
      rest = this.#pending.subarray(head.headText.length);
      this.#pending = Buffer.alloc(0);
      this.#head = head;
      const length = head.get('content-length');
      this.#isFramedByClose = length === undefined && head.get('transfer-encoding') === undefined;
      this.#body = new WireBody(
        length !== undefined ? Number(length) : this.#isFramedByClose ? 'until close' : 'chunked',
      );
    }
    try {
      rest = this.#body.push(rest);
    } catch (error) {
      this.#journal.complain(`request ${this.#record.id}: wrong: ${(error as Error).message}`);
      this.#finish({ kind: 'cut', bytes: this.#bytes, payload: this.#payload() });
      return;
    }
    if (!this.#body.isComplete) return;
    const { id } = this.#record;
    const isLast = this.#head!.get('connection') === 'close';
    this.#finish(this.#answer());
    if (rest.length > 0) {
      this.#journal.complain(`request ${id}: duplicated: bytes after its answer: ${rest.toString('latin1', 0, 200)}`);
      this.close();
    }
    if (isLast) this.close();
  }

  #answer(): ClientEnd {
    const head = this.#head!;
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(head.line)?.[1] ?? 0);
    return { kind: 'whole', status, payload: this.#payload(), error: head.get('x-turnout-error') ?? '' };
  }

  #payload(): string {
    return this.#body === null ? '' : Buffer.concat(this.#body.payload).toString('latin1');
  }

  #onEnd(isBroken: boolean): void {
    this.isUsable = false;
    if (this.#isFramedByClose && !isBroken) this.#finish(this.#answer());
    else this.#finish({ kind: 'cut', bytes: this.#bytes, payload: this.#payload() });
  }
}
