import { objectIn } from '../kit/json-object.ts';
import { TimeLimit } from '../kit/time-limit.ts';
import { randomUUID } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { isIP } from 'node:net';
import type { RequestHead } from '../wire/request-head.ts';
import { type Endpoint, reach } from '../wire/upstream-pool.ts';

/** The field in which the router's own questions name this process, so that the router sees when they come back to it. */
const ASKER_FIELD = 'x-turnout-asker';
const ASKER = randomUUID();

/** This router sent the request itself: one of its workers is the router. */
export const isOwnQuestion = (head: RequestHead): boolean => head.get(ASKER_FIELD) === ASKER;

/** The request exceeded its timeout. */
export class NoAnswer extends Error {}

/** The host name in the engine's URL has no address. The message does not have the name: clients of the router may read it. */
export class Unresolved extends Error {
  constructor(why: string) {
    super(`its host name cannot be resolved (${why})`);
  }
}

/** An engine's response to a request of the router itself. */
export interface Reply {
  readonly status: number;
  readonly text: string;
}

/** Responses to such requests are small. */
const MAX_REPLY_BYTES = 4_194_304;

/** Sends a request of the router itself to an engine (health, version, model), outside the pipeline. */
export function ask(
  endpoint: Endpoint,
  path: string,
  timeoutMs: number,
  options: { method?: string; host?: string; authorization?: string; json?: string } = {},
): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const send = endpoint.isTls ? httpsRequest : httpRequest;
    const { host, authorization, json } = options;
    const request = send({
      ...reach(endpoint),
      path,
      method: options.method ?? 'GET',
      agent: false,
      headers: {
        [ASKER_FIELD]: ASKER,
        ...(host === undefined ? {} : { host }),
        ...(authorization === undefined || authorization === '' ? {} : { authorization }),
        ...(json === undefined
          ? {}
          : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(json) }),
      },
    });
    // The timeout covers everything from connecting to the last byte.
    const limit = new TimeLimit(timeoutMs, () => {
      const why = `no answer within ${timeoutMs} ms`;
      fail(isResolved ? new NoAnswer(why) : new Unresolved(why));
    });
    let isResolved = isIP(endpoint.host) !== 0;
    request.on('socket', (socket) => socket.once('lookup', (error) => (isResolved = error === null)));
    const fail = (error: Error): void => {
      reject(error);
      request.destroy();
    };
    request.on('error', (error: NodeJS.ErrnoException) => {
      reject(error.syscall === 'getaddrinfo' ? new Unresolved(error.code ?? error.message) : error);
    });
    // Always the last event. Whatever the engine did, the promise is settled.
    request.on('close', () => {
      limit.clear();
      reject(new Error('the connection closed before the end of the answer'));
    });
    // Node emits no `response` for 101 (Switching Protocols), which nothing here asks for.
    request.on('upgrade', (response, socket) => {
      resolve({ status: response.statusCode ?? 0, text: '' });
      socket.destroy();
    });
    request.on('response', (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (part: string) => {
        text += part;
        if (text.length > MAX_REPLY_BYTES) fail(new Error('the answer is too large'));
      });
      response.on('error', reject);
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
    });
    request.end(json);
  });
}

/** Sends a GET to one engine. */
export type Asker = (path: string) => Promise<Reply>;

/** @returns the JSON object in the response, or null unless the status is 200 */
export async function askJson(asker: Asker, path: string): Promise<Record<string, unknown> | null> {
  try {
    const reply = await asker(path);
    if (reply.status !== 200) return null;
    return objectIn(reply.text);
  } catch {
    return null;
  }
}

/** @returns the body of the response, or null unless the status is 200 */
export async function askText(asker: Asker, path: string): Promise<string | null> {
  const reply = await asker(path).catch(() => null);
  return reply?.status === 200 ? reply.text : null;
}
