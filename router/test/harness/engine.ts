import { once } from 'node:events';
import { type AddressInfo, type Server, type Socket, createServer } from 'node:net';
import type { TestContext } from 'node:test';
import { type TlsOptions, createServer as createTlsServer } from 'node:tls';
import { gzipSync } from 'node:zlib';
import { WireBody, type WireHead, readWireHead, wire } from './message.ts';
import { Peer, resetSocket } from './peer.ts';
import { PATIENCE_MS, within } from './within.ts';

/**
 * Where this process's engines listen: an address of its own, so that the port of an engine that is gone can't become that of
 * another test's in the meantime. Other systems than Linux have but one loopback address.
 */
const { pid } = process;
const HOST =
  process.platform === 'linux' ? `127.${64 + ((pid >> 16) & 127)}.${(pid >> 8) & 255}.${pid & 255}` : '127.0.0.1';

/** One request as the engine got it. */
export class EngineRequest {
  readonly connection: EngineConnection;
  readonly head: WireHead;
  readonly method: string;
  readonly target: string;
  /** Body bytes that came so far. */
  readonly wireBody: WireBody;
  readonly #whole = Promise.withResolvers<void>();

  constructor(connection: EngineConnection, head: WireHead) {
    this.connection = connection;
    this.head = head;
    [this.method = '', this.target = ''] = head.line.split(' ');
    const length = Number(head.get('content-length') ?? 0);
    this.wireBody = new WireBody(head.get('transfer-encoding') === undefined ? length : 'chunked');
  }

  push(bytes: Buffer): Buffer {
    const rest = this.wireBody.push(bytes);
    if (this.wireBody.isComplete) this.#whole.resolve();
    return rest;
  }

  /** Resolves when the last byte of its body is here; without a timer, for engines that only then do something. */
  get whole(): Promise<void> {
    return this.#whole.promise;
  }

  /** The payload, once all of it is here. */
  async payload(ms = PATIENCE_MS): Promise<Buffer> {
    await within(this.#whole.promise, 'the engine gets the whole request body', ms);
    return Buffer.concat(this.wireBody.payload);
  }

  /** Answers 200 with a JSON (or other) body of known length. */
  answer(body: string, fields: readonly string[] = ['content-type: application/json']): void {
    this.connection.write(answer(200, body, fields));
  }

  /** Answers JSON, compressed if the request takes that. */
  answerCompressed(json: string): void {
    if (this.head.get('accept-encoding')?.includes('gzip') !== true) return this.answer(json);
    this.answer(gzipSync(json).toString('latin1'), ['content-type: application/json', 'content-encoding: gzip']);
  }

  /** Begins a chunked event stream. */
  beginStream(): void {
    this.connection.write(STREAM_HEAD);
  }
}

export const STREAM_HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n';

/** A whole answer with content-length. */
export function answer(status: number, body: string, fields: readonly string[] = []): string {
  const lines = [`HTTP/1.1 ${status} Answer`, ...fields, `content-length: ${Buffer.byteLength(body, 'latin1')}`];
  return `${lines.join('\r\n')}\r\n\r\n${body}`;
}

/** One connection of the router to the engine. */
export class EngineConnection extends Peer {
  readonly requests: EngineRequest[] = [];
  readonly #onRequest: (request: EngineRequest) => void;
  #pending: Buffer = Buffer.alloc(0);
  #current: EngineRequest | null = null;

  constructor(socket: Socket, onRequest: (request: EngineRequest) => void) {
    super(socket);
    this.#onRequest = onRequest;
  }

  protected override onBytes(bytes: Buffer): void {
    let rest = bytes;
    while (rest.length > 0) {
      if (this.#current === null) {
        const all = Buffer.concat([this.#pending, rest]);
        const head = readWireHead(all);
        this.#pending = all;
        if (head === null) return;
        this.#pending = Buffer.alloc(0);
        rest = all.subarray(head.headText.length);
        this.#current = new EngineRequest(this, head);
        this.requests.push(this.#current);
        this.#onRequest(this.#current);
      }
      rest = this.#current.push(rest);
      if (this.#current.wireBody.isComplete) this.#current = null;
    }
  }
}

/** What the engine says to a question outside the request road: an answer's bytes, or null: nothing, ever. */
export type ControlAnswer = (path: string) => string | null;

/** By default the engine is well and tells nothing about itself. */
export const wellButUnknown: ControlAnswer = (path) => (path === '/health' ? answer(200, '') : answer(404, ''));

/** An engine whose every byte is the test's. Questions of the router's own are answered by `control`, apart. */
export class Engine {
  readonly url: string;
  /** Connections with requests, in order of their accepting; those for control questions are not among them. */
  readonly connections: EngineConnection[] = [];
  readonly requests: EngineRequest[] = [];
  /** Paths of the control questions asked. */
  readonly questions: string[] = [];
  control: ControlAnswer = wellButUnknown;
  /** Called for each request when its head is here; requests wait for `next` in any case. */
  onRequest: ((request: EngineRequest) => void) | null = null;
  onConnection: ((connection: EngineConnection) => void) | null = null;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #taken = 0;
  #wake: (() => void)[] = [];

  constructor(server: Server, scheme: string) {
    this.#server = server;
    const { address, port } = server.address() as AddressInfo;
    this.url = `${scheme}://${address}:${port}`;
  }

  /** Open connections, control questions too. */
  get openSockets(): number {
    return this.#sockets.size;
  }

  /** Connections with requests that the router has not ended. */
  get openConnections(): number {
    return this.connections.filter((connection) => !connection.hasEnded).length;
  }

  /** The next request, as soon as its head is here. */
  async next(ms = PATIENCE_MS): Promise<EngineRequest> {
    while (this.#taken >= this.requests.length) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake.push(resolve);
      await within(promise, 'a request reaches the engine', ms);
    }
    return this.requests[this.#taken++]!;
  }

  /** Stops listening and resets all connections, as a killed process does. */
  kill(): void {
    this.#server.close();
    for (const socket of this.#sockets) resetSocket(socket);
  }

  accept(socket: Socket): void {
    socket.setNoDelay(true);
    this.#sockets.add(socket);
    socket.on('close', () => this.#sockets.delete(socket));
    const connection = new EngineConnection(socket, (request) => this.#take(request));
    this.connections.push(connection);
    this.onConnection?.(connection);
  }

  #take(request: EngineRequest): void {
    const { connection, head, method, target } = request;
    // The router asks its own questions with a connection each; what it forwards never says "close".
    if (method === 'GET' && connection.requests.length === 1 && head.get('connection') === 'close') {
      const at = this.connections.indexOf(connection);
      if (at >= 0) this.connections.splice(at, 1);
      this.questions.push(target);
      const said = this.control(target);
      if (said !== null) connection.socket.end(wire(said));
      return;
    }
    this.requests.push(request);
    this.onRequest?.(request);
    const woken = this.#wake;
    this.#wake = [];
    for (const wake of woken) wake();
  }
}

export interface EngineOptions {
  readonly onRequest?: (request: EngineRequest) => void;
  readonly onConnection?: (connection: EngineConnection) => void;
  readonly control?: ControlAnswer;
  readonly tls?: TlsOptions;
  /** 0: any. */
  readonly port?: number;
  readonly host?: string;
}

/** Starts an engine that is killed after the test. */
export async function startEngine(t: TestContext, options: EngineOptions = {}): Promise<Engine> {
  const take = (socket: Socket): void => engine.accept(socket);
  const server =
    options.tls === undefined
      ? createServer({ allowHalfOpen: true }, take)
      : createTlsServer({ ...options.tls, allowHalfOpen: true }, take);
  // Test certificates are for 127.0.0.1.
  server.listen(options.port ?? 0, options.host ?? (options.tls === undefined ? HOST : '127.0.0.1'));
  await once(server, 'listening');
  const engine = new Engine(server, options.tls === undefined ? 'http' : 'https');
  engine.onRequest = options.onRequest ?? null;
  engine.onConnection = options.onConnection ?? null;
  if (options.control !== undefined) engine.control = options.control;
  t.after(() => engine.kill());
  return engine;
}

/** The URL of an address where nobody listens. */
export async function deadUrl(): Promise<string> {
  const server = createServer();
  server.listen(0, HOST);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return `http://${HOST}:${port}`;
}
