import { objectIn } from '../kit/json-object.ts';
import { type IncomingMessage, request as requestPlain } from 'node:http';
import { request as requestTls } from 'node:https';
import { Readable } from 'node:stream';
import type { ReadableStream } from 'node:stream/web';
import { buffer } from 'node:stream/consumers';
import type { Exchange } from '../exchange.ts';

/** Fields that frame a message or concern its connection. */
const ofTheConnection = new Set([
  'connection',
  'content-length',
  'expect',
  'host',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** What the trainer says to a question of the router's own. */
export interface TrainerReply {
  readonly status: number;
  readonly text: string;
  /** The JSON object of the body; {} for anything else. */
  readonly value: Readonly<Record<string, unknown>>;
}

/** The Tinker server that trains: what is not sampling is its part of the API. */
export class Trainer {
  readonly #url: URL;

  constructor(url: string) {
    this.#url = new URL(url);
  }

  /** Passes a client's request on, and the response back, byte for byte. */
  async forward(x: Exchange): Promise<Response> {
    let message: IncomingMessage;
    try {
      message = await this.#send(x, targetOf(x), x.head.method, x.body.pieces);
    } catch (error) {
      return Response.json(this.#unreachable(error as Error), { status: 503 });
    }
    const status = message.statusCode!;
    const headers = new Headers();
    for (let i = 0; i < message.rawHeaders.length; i += 2) {
      const name = message.rawHeaders[i]!;
      if (!ofTheConnection.has(name.toLowerCase())) headers.append(name, message.rawHeaders[i + 1]!);
    }
    if (status === 200) {
      // Results may be large: they are not held here.
      headers.set('transfer-encoding', 'chunked');
      return new Response(Readable.toWeb(message) as ReadableStream<Uint8Array>, { headers });
    }
    // With content-length: the SDK takes an error without it for one of a proxy.
    const bytes = await buffer(message);
    return new Response(bytes.length === 0 ? null : new Uint8Array(bytes), { status, headers });
  }

  /** Asks with the headers of a client's request, its key among them. Without a response the reply is a 503 in words. */
  async ask(x: Exchange, method: string, path: string, body: readonly Uint8Array[] = []): Promise<TrainerReply> {
    let status = 503;
    let text: string;
    try {
      const message = await this.#send(x, `/api/v1${path}`, method, body, ['accept-encoding']);
      status = message.statusCode!;
      text = (await buffer(message)).toString();
    } catch (error) {
      text = JSON.stringify(this.#unreachable(error as Error));
    }
    return { status, text, value: objectIn(text) ?? {} };
  }

  #send(
    x: Exchange,
    target: string,
    method: string,
    body: readonly Uint8Array[],
    without: readonly string[] = [],
  ): Promise<IncomingMessage> {
    const url = this.#url;
    const headers: Record<string, string[]> = {};
    for (const [name, value] of x.head.pairs()) {
      const lower = name.toLowerCase();
      if (!ofTheConnection.has(lower) && !without.includes(lower)) (headers[lower] ??= []).push(value);
    }
    if (method !== 'GET') headers['content-length'] = [String(body.reduce((sum, { length }) => sum + length, 0))];
    return new Promise((resolve, reject) => {
      const send = url.protocol === 'https:' ? requestTls : requestPlain;
      // A connection each: what a pool holds may be dead when it is needed, and not every request may be sent twice.
      const asked = send(
        url,
        { path: url.pathname.replace(/\/+$/, '') + target, method, headers, agent: false },
        resolve,
      );
      asked.on('error', reject);
      // Node emits no `response` for 101 (Switching Protocols).
      asked.on('close', () => reject(new Error('it closed the connection without a response')));
      x.activity = { abort: () => asked.destroy() };
      for (const piece of body) asked.write(piece);
      asked.end();
    });
  }

  #unreachable({ message }: Error): object {
    return { detail: `The trainer ${this.#url.origin} (--tinker-trainer) sent no response: ${message}` };
  }
}

/** Path and query as the client wrote them. */
function targetOf({ head: { target } }: Exchange): string {
  const { pathname, search } = new URL(target.startsWith('/') ? `http://turnout${target}` : target);
  return pathname + search;
}
