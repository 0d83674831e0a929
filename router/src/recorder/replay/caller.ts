import { Agent, type IncomingMessage, request as requestHttp } from 'node:http';
import { Agent as TlsAgent, request as requestHttps } from 'node:https';
import type { RecordedCall } from './recording.ts';

export interface CallerAnswer {
  readonly status: number;
  readonly body: string;
  readonly isEventStream: boolean;
  /** Monotonic ms. */
  readonly firstByteMs: number;
}

/** Names that a header can have: its value is UTF-8, has no control characters, and does not begin or end with a space. */
const IN_HEADER = /^(?! )\P{Cc}+(?<! )$/u;

/** Sends recorded requests as they were, over connections that are kept. Without time limits: a generation may take hours. */
export class Caller {
  readonly #against: URL;
  readonly #apiKey: string | undefined;
  readonly #agent: Agent;

  constructor(against: URL, apiKey: string | undefined) {
    this.#against = against;
    this.#apiKey = apiKey;
    this.#agent = against.protocol === 'https:' ? new TlsAgent({ keepAlive: true }) : new Agent({ keepAlive: true });
  }

  async post({ path, session }: RecordedCall, body: Buffer): Promise<CallerAnswer> {
    const url = new URL(this.#against);
    url.search = '';
    // Not resolved: `//host/path` would name another host.
    url.pathname = this.#against.pathname.replace(/\/$/, '') + path;
    const headers = {
      'content-type': 'application/json',
      'content-length': body.length,
      // Its turns on one engine, as they were.
      ...(IN_HEADER.test(session) ? { 'x-session-id': Buffer.from(session).toString('latin1') } : {}),
      ...(this.#apiKey === undefined ? {} : { authorization: `Bearer ${this.#apiKey}` }),
    };
    const options = { method: 'POST', headers, agent: this.#agent };
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const send = url.protocol === 'https:' ? requestHttps : requestHttp;
    const asked = send(url, options, resolve).on('error', reject);
    // Node emits no `response` for 101 (Switching Protocols).
    asked.on('close', () => reject(new Error('the connection closed without a response')));
    asked.end(body);
    const answer = await promise;
    const isEventStream = answer.headers['content-type']?.startsWith('text/event-stream') ?? false;
    const parts: Buffer[] = [];
    let firstByteMs = 0;
    for await (const part of answer) {
      firstByteMs ||= performance.now();
      parts.push(part as Buffer);
    }
    return {
      status: answer.statusCode ?? 0,
      body: Buffer.concat(parts).toString(),
      isEventStream,
      firstByteMs: firstByteMs || performance.now(),
    };
  }

  close(): void {
    this.#agent.destroy();
  }
}
