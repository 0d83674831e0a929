/** One HTTP request and its response. */

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Core, Job } from '../model/core.ts';
import { SchemaProblem, type Fields } from './read-request.ts';

export class HttpCall {
  readonly core: Core;
  readonly request: IncomingMessage;
  readonly query: URLSearchParams;
  /** The JSON object of the body; {} without a body; or why the body has none. */
  readonly given: Fields | SchemaProblem;
  /** What is sent is dropped. */
  isMute = false;
  readonly #response: ServerResponse;

  constructor(core: Core, request: IncomingMessage, response: ServerResponse, query: string, body: Buffer) {
    this.core = core;
    this.request = request;
    this.query = new URLSearchParams(query);
    this.given = parse(body);
    this.#response = response;
  }

  /** `given` for endpoints that need no body: {} if it is not a JSON object. */
  get body(): Fields {
    return this.given instanceof SchemaProblem ? {} : this.given;
  }

  header(name: string): string | undefined {
    const value = this.request.headers[name];
    return Array.isArray(value) ? value[0] : value;
  }

  json(status: number, value: unknown): void {
    this.send(status, 'application/json', JSON.stringify(value));
  }

  text(status: number, text: string): void {
    this.send(status, 'text/plain; charset=utf-8', text);
  }

  empty(status = 200): void {
    this.send(status, null, '');
  }

  send(status: number, type: string | null, text: string): void {
    if (this.#response.destroyed || this.isMute) return;
    const body = Buffer.from(text);
    this.#response.writeHead(status, {
      server: serverName,
      ...(type === null ? {} : { 'content-type': type }),
      'content-length': body.length,
    });
    this.#response.end(body);
  }

  /** Breaks the connection off. */
  drop(): void {
    this.#response.destroy();
  }

  /** A client that disconnects before its response is complete cancels its job. */
  tie(job: Job): void {
    const session = this.header('x-session-id');
    if (session !== undefined) job.session = session;
    this.#response.on('close', () => {
      if (!this.#response.writableFinished) this.core.abandon(job);
    });
  }

  /** @param isNamed events have an `event:` line with their type */
  openStream({ isNamed = false } = {}): SseStream {
    return new SseStream(this.#response, isNamed);
  }
}

/** So that its figures are not taken for a GPU's. */
const serverName = 'turnout-sim';

/** With more unsent bytes, progress is merged until the client has read them. */
const behindBytes = 256 * 1024;

export class SseStream {
  readonly #response: ServerResponse;
  readonly #isNamed: boolean;

  constructor(response: ServerResponse, isNamed: boolean) {
    this.#response = response;
    this.#isNamed = isNamed;
    response.writeHead(200, {
      server: serverName,
      'content-type': 'text/event-stream; charset=utf-8',
    });
    response.flushHeaders();
  }

  get isBehind(): boolean {
    return this.#response.writableLength > behindBytes;
  }

  onCaughtUp(listener: () => void): void {
    this.#response.on('drain', listener);
  }

  event(value: object): void {
    const name = this.#isNamed ? `event: ${(value as { type: string }).type}\n` : '';
    this.#response.write(`${name}data: ${JSON.stringify(value)}\n\n`);
  }

  end(): void {
    this.#response.end();
  }

  done(): void {
    this.#response.end('data: [DONE]\n\n');
  }
}

function parse(body: Buffer): Fields | SchemaProblem {
  if (body.length === 0) return {};
  const text = body.toString('utf8');
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Fields;
    return new SchemaProblem('the body is not a JSON object', 'body');
  } catch (error) {
    const { message } = error as SyntaxError;
    // The engines always give a position, V8 only sometimes.
    const position = /at position (\d+)/.exec(message)?.[1] ?? (message.includes('end of JSON') ? text.length : 0);
    return new SchemaProblem(`JSON decode error: ${message}`, `body.${position}`);
  }
}
