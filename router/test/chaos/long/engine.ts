import { once } from 'node:events';
import { type Server, type Socket, createServer } from 'node:net';
import type { Random } from '../../../src/kit/rng.ts';
import { resetSocket } from '../../../src/wire/reset-socket.ts';
import { WireBody, type WireHead, chunk, readWireHead } from '../../harness/message.ts';
import { DONE, eventText, jsonAnswer, readBody } from './content.ts';
import { type Fault, drawFault } from './faults.ts';
import type { Execution, Journal } from './journal.ts';

/** What engines of a run have in common. */
export interface EngineWorld {
  readonly journal: Journal;
  readonly random: Random;
  /** 1: faults as often as their table says; 0: none. */
  readonly faultScale: number;
  /** Milliseconds that an answer takes; a stream says something all the while. */
  readonly serviceMs: (random: Random) => number;
  readonly events: (random: Random) => number;
}

const ERROR_STATUSES = [500, 502, 503, 429, 400];

/** An engine on loopback whose faults are drawn by chance. All that it does is in the journal. */
export class ChaosEngine {
  readonly port: number;
  readonly world: EngineWorld;
  readonly sockets = new Set<EngineSocket>();
  isDead = false;
  isStalled = false;
  stallEndedMs = -Infinity;
  /** Times are stretched by this. */
  slowness = 1;
  /** Share of requests that get an error status. */
  sickness = 0;
  isHealthRefused = false;
  #server: Server | null = null;

  constructor(port: number, world: EngineWorld) {
    this.port = port;
    this.world = world;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get isWell(): boolean {
    return !this.isDead && !this.isStalled && this.slowness === 1 && this.sickness === 0 && !this.isHealthRefused;
  }

  /** @returns false: the port is taken. */
  async start(): Promise<boolean> {
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      this.sockets.add(new EngineSocket(socket, this));
    });
    server.listen({ port: this.port, host: '127.0.0.1', backlog: 1024 });
    try {
      await once(server, 'listening');
    } catch {
      return false;
    }
    this.#server = server;
    this.isDead = false;
    return true;
  }

  /** As a process that is killed: nothing listens, every connection is reset. */
  kill(): void {
    this.isDead = true;
    this.#server?.close();
    this.#server = null;
    for (const socket of this.sockets) socket.kill();
  }

  /** As a process that is stopped: connections come about, bytes are taken by the system, nothing happens. */
  setStalled(isStalled: boolean): void {
    this.isStalled = isStalled;
    if (!isStalled) this.stallEndedMs = performance.now();
    for (const socket of this.sockets) socket.setStalled(isStalled);
  }
}

interface Request {
  readonly head: WireHead;
  readonly body: WireBody;
  readonly execution: Execution;
  readonly x: number;
  readonly fault: Fault;
}

/** One connection of the router. */
export class EngineSocket {
  readonly #socket: Socket;
  readonly #engine: ChaosEngine;
  readonly #timers = new Set<NodeJS.Timeout>();
  #pending: Buffer = Buffer.alloc(0);
  #request: Request | null = null;
  #isAnswering = false;
  #last: Execution | null = null;
  /** What was due while the engine was stalled. */
  #held: (() => void)[] = [];

  constructor(socket: Socket, engine: ChaosEngine) {
    this.#socket = socket;
    this.#engine = engine;
    socket.setDefaultEncoding('latin1');
    socket.on('data', (bytes: Buffer) => this.#onBytes(bytes));
    socket.on('error', () => socket.destroy());
    socket.on('end', () => {
      this.#over('gone');
      socket.destroy();
    });
    socket.on('close', () => {
      this.#over('gone');
      for (const timer of this.#timers) clearTimeout(timer);
      engine.sockets.delete(this);
    });
    if (engine.isStalled) socket.pause();
  }

  toString(): string {
    const { destroyed, readyState, writableLength, bytesRead, remotePort } = this.#socket;
    const last = this.#last === null ? 'no request' : `request ${this.#last.id} ${this.#last.end}`;
    return `from ${remotePort} ${readyState}, destroyed ${destroyed}, ${writableLength} unsent, ${bytesRead} read, ${last}`;
  }

  kill(): void {
    const { journal } = this.#engine.world;
    // A reset takes with it what the system has not delivered, of an answer that was all sent too.
    if (this.#last !== null && !journal.isOver(this.#last.id)) this.#last.isDoubtful = true;
    this.#over('cut');
    resetSocket(this.#socket);
  }

  setStalled(isStalled: boolean): void {
    if (isStalled) {
      this.#socket.pause();
      if (this.#last?.end === 'running') this.#last.isStalled = true;
      return;
    }
    this.#socket.resume();
    for (const run of this.#held.splice(0)) run();
  }

  #later(ms: number, run: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      if (this.#socket.destroyed) return;
      if (this.#engine.isStalled) this.#held.push(run);
      else run();
    }, ms * this.#engine.slowness);
    this.#timers.add(timer);
  }

  #over(end: 'whole' | 'cut' | 'gone'): void {
    const execution = this.#last;
    if (execution === null || execution.end !== 'running') return;
    execution.end = end;
    execution.endMs = performance.now();
  }

  #onBytes(bytes: Buffer): void {
    let rest = bytes;
    while (rest.length > 0) {
      if (this.#request === null) {
        this.#pending = this.#pending.length === 0 ? rest : Buffer.concat([this.#pending, rest]);
        const head = readWireHead(this.#pending);
        if (head === null) return;
        rest = this.#pending.subarray(head.headText.length);
        this.#pending = Buffer.alloc(0);
        if (!this.#begin(head)) return;
      }
      const request: Request = this.#request!;
      rest = request.body.push(rest);
      if (!request.body.isComplete) return;
      this.#request = null;
      this.#onRequest(request);
    }
    // A request without a body is complete with its head.
    if (this.#request?.body.isComplete === true) {
      const request = this.#request;
      this.#request = null;
      this.#onRequest(request);
    }
  }

  /** @returns false: it is no work, and was answered. */
  #begin(head: WireHead): boolean {
    const { journal, random, faultScale } = this.#engine.world;
    const id = Number(head.get('x-chaos-id') ?? 0);
    if (id === 0) {
      const isWell = head.line.startsWith('GET /health ') && !this.#engine.isHealthRefused;
      this.#socket.end(`HTTP/1.1 ${isWell ? '200 OK' : '503 No'}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n`);
      return false;
    }
    if (this.#isAnswering) journal.complain(`request ${id}: duplicated: sent while the connection is at work`);
    const fault = drawFault(random, faultScale);
    const startMs = performance.now();
    const isLateRead = startMs - this.#engine.stallEndedMs < 1000;
    const execution = journal.execute({ id, engine: this.#engine.url, startMs, fault, isLateRead });
    const length = Number(head.get('content-length') ?? 0);
    const body = new WireBody(head.get('transfer-encoding') === undefined ? length : 'chunked');
    this.#last = execution;
    this.#request = { head, body, execution, x: Math.floor(random() * 1e9), fault };
    if (fault === 'early') this.#answerEarly(this.#request);
    return true;
  }

  #onRequest(request: Request): void {
    const { journal, random } = this.#engine.world;
    const { execution, fault, body } = request;
    if (execution.end !== 'running') return;
    execution.isRequestRead = true;
    const asked = readBody(Buffer.concat(body.payload).toString('latin1'));
    if (asked === null || asked.id !== execution.id) {
      journal.complain(`request ${execution.id}: wrong: its engine read another body than was sent`);
      this.#socket.destroy();
      return;
    }
    this.#isAnswering = true;
    if (random() < this.#engine.sickness || fault === 'bad_status') this.#answerBadStatus(request);
    else if (fault === 'reset_before') this.#later(random() * 50, () => this.#break(true));
    else if (fault === 'close_before') this.#later(random() * 50, () => this.#break(false));
    else if (fault === 'garbage') this.#answerGarbage(execution);
    else if (asked.stream && !['too_short', 'too_long', 'until_close'].includes(fault)) this.#answerStream(request);
    else this.#answerWhole(request);
  }

  /** Breaks off in the middle of whatever was said. */
  #break(byReset: boolean): void {
    this.#over('cut');
    if (byReset) resetSocket(this.#socket);
    else this.#socket.end(() => this.#socket.destroy());
  }

  #finish(request: Request, closes: boolean): void {
    this.#over('whole');
    this.#isAnswering = false;
    if (closes) this.#close();
    else if (request.fault === 'close_after') {
      this.#later(this.#engine.world.random() * 100, () => {
        if (!this.#isAnswering && this.#request === null) this.#close();
      });
    }
  }

  /** Requests that are on their way are not read any more: as engines do whose idle timer fired. */
  #close(): void {
    this.#socket.removeAllListeners('data');
    this.#socket.end(() => this.#socket.destroy());
  }

  #say(execution: Execution, status: number, fields: readonly string[], rest: string): void {
    execution.isHeadSent = true;
    this.#socket.write(
      `HTTP/1.1 ${status} Status\r\nx-chaos-engine: ${this.#engine.port}\r\n${fields.join('\r\n')}\r\n\r\n${rest}`,
    );
  }

  #answerEarly({ execution }: Request): void {
    execution.status = 413;
    execution.payload = `{"id":${execution.id},"early":true}`;
    this.#say(execution, 413, [`content-length: ${execution.payload.length}`, 'connection: close'], execution.payload);
    this.#over('whole');
    // The rest of the request is read and dropped, so that a reset doesn't take the answer with it.
    this.#later(1000, () => this.#socket.destroy());
  }

  #answerBadStatus(request: Request): void {
    const { random } = this.#engine.world;
    const { execution } = request;
    execution.status = ERROR_STATUSES[Math.floor(random() * ERROR_STATUSES.length)]!;
    execution.payload = `{"id":${execution.id},"status":${execution.status}}`;
    this.#later(random() * 20, () => {
      this.#say(execution, execution.status, [`content-length: ${execution.payload.length}`], execution.payload);
      this.#finish(request, false);
    });
  }

  #answerGarbage(execution: Execution): void {
    execution.isMalformed = true;
    this.#socket.write('SSH-2.0-chaos\r\n\r\n');
    this.#later(20, () => this.#break(false));
  }

  #answerWhole(request: Request): void {
    const { random, serviceMs } = this.#engine.world;
    const { execution, fault, x } = request;
    const size = random() < 0.02 ? 300_000 : Math.floor(random() * 2000);
    const text = jsonAnswer(execution.id, x, size);
    const promised = fault === 'too_short' ? text.length + 10 : fault === 'too_long' ? text.length - 20 : text.length;
    execution.status = 200;
    execution.payload = text.slice(0, promised);
    execution.isMalformed = fault === 'too_long';
    const framing = fault === 'until_close' ? 'x-framing: close' : `content-length: ${promised}`;
    const fields = ['content-type: application/json', framing];
    const ms = serviceMs(random);
    this.#later(fault === 'stall_before' ? this.#stall(execution) : ms, () => {
      if (fault === 'reset_in_head') {
        this.#socket.write('HTTP/1.1 200 OK\r\ncontent-le');
        this.#later(5, () => this.#break(true));
        return;
      }
      const half = Math.floor(text.length / 2);
      if (fault === 'drip' || fault === 'stall_inside') {
        this.#say(execution, 200, fields, text.slice(0, half));
        this.#later(fault === 'drip' ? 100 : this.#stall(execution), () => {
          this.#socket.write(text.slice(half));
          this.#finish(request, false);
        });
        return;
      }
      this.#say(execution, 200, fields, text);
      if (fault === 'too_short') this.#break(false);
      else this.#finish(request, fault === 'until_close');
    });
  }

  #stall(execution: Execution): number {
    execution.isStalled = true;
    return 1000 + this.#engine.world.random() * 19_000;
  }

  #answerStream(request: Request): void {
    const { random, serviceMs, events } = this.#engine.world;
    const { execution, fault, x } = request;
    const count = events(random);
    const gapMs = serviceMs(random) / count;
    const texts = Array.from({ length: count }, (_, n) => eventText(execution.id, x, n, Math.floor(random() * 200)));
    execution.status = 200;
    execution.payload = texts.join('') + DONE;
    const breaksAt = Math.floor(random() * count);
    const fields = ['content-type: text/event-stream', 'transfer-encoding: chunked'];
    const next = (n: number): void => {
      if (n === count) {
        this.#socket.write(`${chunk(DONE)}0\r\n\r\n`);
        this.#finish(request, false);
        return;
      }
      const bytes = chunk(texts[n]!);
      if (n === breaksAt && fault === 'reset_in_chunk') {
        this.#socket.write(bytes.slice(0, bytes.length / 2));
        this.#later(2, () => this.#break(true));
        return;
      }
      if (n === breaksAt && fault === 'close_between_chunks') {
        this.#break(false);
        return;
      }
      const afterMs = n === breaksAt && fault === 'stall_inside' ? this.#stall(execution) : gapMs;
      if (fault !== 'drip') {
        this.#socket.write(bytes);
        this.#later(afterMs, () => next(n + 1));
        return;
      }
      const at = Math.floor(random() * bytes.length);
      this.#socket.write(bytes.slice(0, at));
      // One timer after the other: of two that run at once, Node may call the later one first.
      this.#later(afterMs / 2, () => {
        this.#socket.write(bytes.slice(at));
        this.#later(afterMs / 2, () => next(n + 1));
      });
    };
    this.#later(fault === 'stall_before' ? this.#stall(execution) : gapMs, () => {
      if (fault === 'reset_in_head') {
        this.#socket.write('HTTP/1.1 200 OK\r\ntransfer-enc');
        this.#later(5, () => this.#break(true));
        return;
      }
      this.#say(execution, 200, fields, '');
      next(0);
    });
  }
}
