import { type Socket, connect } from 'node:net';
import type { TestContext } from 'node:test';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { WireBody, type WireHead, readWireHead } from './message.ts';
import { Peer } from './peer.ts';
import { PATIENCE_MS, within } from './within.ts';

const LAST_CHUNK = '0\r\n\r\n';

/** One answer as it was on the wire. */
export interface ClientAnswer extends WireHead {
  readonly status: number;
  /** The body as it came, chunk lines and all. */
  readonly raw: Buffer;
  readonly payload: Buffer;
  /** The payload as text. */
  readonly text: string;
}

/** A client that writes and reads bytes. */
export class Client extends Peer {
  #unread: Buffer = Buffer.alloc(0);
  #wake: (() => void)[] = [];

  protected override onBytes(bytes: Buffer): void {
    if (!this.isRecording) return;
    this.#unread = Buffer.concat([this.#unread, bytes]);
    this.#wakeAll();
  }

  protected override onEnded(): void {
    this.#wakeAll();
  }

  /** Bytes that no `answer` or `read` has taken. */
  get unread(): string {
    return this.#unread.toString('latin1');
  }

  get hasLastChunk(): boolean {
    return this.#lastChunkAt >= 0;
  }

  /** It begins a line: the last field of a head may end with a 0 too. -1: it is not there. */
  get #lastChunkAt(): number {
    if (this.#unread.indexOf(LAST_CHUNK) === 0) return 0;
    const at = this.#unread.indexOf(`\r\n${LAST_CHUNK}`);
    return at < 0 ? -1 : at + 2;
  }

  /** Takes bytes up to and with `text`. */
  async read(text: string, ms = PATIENCE_MS): Promise<string> {
    return this.#take(
      `the client reads ${JSON.stringify(text)}`,
      () => {
        const at = text === LAST_CHUNK ? this.#lastChunkAt : this.#unread.indexOf(text, 'latin1');
        return at < 0 ? null : [this.unread.slice(0, at + text.length), at + text.length];
      },
      ms,
    );
  }

  /** Takes one whole answer. `method`: of the request that it answers. */
  async answer(method = 'GET', ms = PATIENCE_MS): Promise<ClientAnswer> {
    return this.#take('the client reads an answer', this.#reading(method), ms);
  }

  /** As `answer`. @returns null: the connection ended before the answer did. Silence is a failure of the test. */
  async answerOrNone(method = 'GET'): Promise<ClientAnswer | null> {
    return this.answer(method).catch((error: unknown) => {
      if (this.hasEnded) return null;
      throw error;
    });
  }

  /** Reads one answer as it comes: what has been read once is not read again. */
  #reading(method: string): () => [ClientAnswer, number] | null {
    let head: WireHead | null = null;
    let status = 0;
    let isUntilClose = false;
    let body!: WireBody;
    let taken = 0;
    return () => {
      if (head === null) {
        head = readWireHead(this.#unread);
        if (head === null) return null;
        status = Number(/^HTTP\/1\.1 (\d{3})( |$)/.exec(head.line)?.[1]);
        if (Number.isNaN(status)) throw new Error(`not a status line: ${head.line}`);
        const length = head.get('content-length');
        const isEmpty = method === 'HEAD' || status === 204 || status === 304 || status < 200;
        const framing =
          head.get('transfer-encoding') === 'chunked'
            ? 'chunked'
            : length === undefined
              ? 'until close'
              : Number(length);
        body = new WireBody(isEmpty ? 0 : framing);
        isUntilClose = framing === 'until close' && !isEmpty;
        taken = head.headText.length;
      }
      // A copy: parts of what is read so far would keep all of it in memory, each time.
      const rest = body.push(Buffer.from(this.#unread.subarray(taken)));
      taken = this.#unread.length - rest.length;
      if (!(isUntilClose ? this.hasEnded : body.isComplete)) return null;
      const raw = Buffer.concat(body.raw);
      const payload = Buffer.concat(body.payload);
      return [{ ...head, status, raw, payload, text: payload.toString('utf8') }, taken];
    };
  }

  async #take<T>(claim: string, look: () => [T, number] | null, ms: number): Promise<T> {
    const deadline = performance.now() + ms;
    for (;;) {
      const found = look();
      if (found !== null) {
        this.#unread = this.#unread.subarray(found[1]);
        return found[0];
      }
      const soFar = () => `; so far: ${JSON.stringify(this.unread.slice(0, 2000))}`;
      if (this.hasEnded) throw new Error(`the connection ended before ${claim}${soFar()}`);
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake.push(resolve);
      await within(promise, claim, Math.max(1, deadline - performance.now())).catch((error: unknown) => {
        throw new Error((error as Error).message + soFar());
      });
    }
  }

  #wakeAll(): void {
    const woken = this.#wake;
    this.#wake = [];
    for (const wake of woken) wake();
  }
}

/** Connects to `http://` or, with `tls`, `https://` addresses. The connection is broken off after the test. */
export async function connectClient(t: TestContext, url: string, tls: ConnectionOptions = {}): Promise<Client> {
  const { hostname: host, port, protocol } = new URL(url);
  const isTls = protocol === 'https:';
  const to = { host, port: Number(port), allowHalfOpen: true };
  const socket: Socket = isTls ? connectTls({ ...tls, ...to }) : connect(to);
  socket.setNoDelay(true);
  const client = new Client(socket);
  t.after(() => socket.destroy());
  await within(
    new Promise((resolve, reject) => {
      socket.once(isTls ? 'secureConnect' : 'connect', resolve);
      socket.once('error', reject);
    }),
    `connecting to ${url}`,
  );
  return client;
}

/** A request with a body, all of it as bytes. `fields`: further header lines. */
export function request(method: string, target: string, body = '', fields: readonly string[] = []): string {
  const lines = [`${method} ${target} HTTP/1.1`, 'host: localhost', ...fields];
  if (body !== '') lines.push(`content-length: ${Buffer.byteLength(body, 'latin1')}`);
  return `${lines.join('\r\n')}\r\n\r\n${body}`;
}

/** Sends a request on a connection of its own. @returns its answer */
export async function send(t: TestContext, url: string, bytes: string | Buffer): Promise<ClientAnswer> {
  const client = await connectClient(t, url);
  client.write(bytes);
  const answer = await client.answer(bytes.toString('latin1').split(' ')[0]);
  client.end();
  return answer;
}
