import { request, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import type { Question } from './questions.ts';

type Message = Pick<Question, 'method' | 'headers' | 'body'>;

export interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  body: string;
  /** False when the connection ended before the message did: what a client sees of a truncated answer. */
  isComplete: boolean;
}

export interface Stream {
  /** Settles once that many `data:` events have come. */
  seen: (events: number) => Promise<void>;
  /** Disconnects, as a client that has lost interest does. */
  leave: () => void;
  answer: Promise<Answer>;
}

/** Long enough for anything the tests ask of tiny models on a busy machine; reached only by what hangs. */
const GIVE_UP_AFTER_MS = 120_000;

export async function call(url: string, path: string, message: Message = {}, signal?: AbortSignal): Promise<Answer> {
  return (await open(url, path, message, signal)).answer;
}

/** Asks and gives the way to disconnect, for a client that leaves before it has even a head. */
export function askAndLeave(url: string, path: string, message: Message): () => void {
  const leaving = new AbortController();
  call(url, path, message, leaving.signal).catch(() => {});
  return () => leaving.abort();
}

/** Settles with the head of the answer. A connection of its own for each call, so that nothing else is on the socket. */
export function open(url: string, path: string, message: Message = {}, signal?: AbortSignal): Promise<Stream> {
  const body = typeof message.body === 'object' ? JSON.stringify(message.body) : message.body;
  const outgoing = request(new URL(path, url), {
    agent: false,
    method: message.method ?? (body === undefined ? 'GET' : 'POST'),
    headers: {
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...message.headers,
    },
    signal: AbortSignal.any([AbortSignal.timeout(GIVE_UP_AFTER_MS), ...(signal ? [signal] : [])]),
  });
  outgoing.end(body);
  return new Promise((resolve, reject) => {
    outgoing.once('error', reject);
    outgoing.once('response', (incoming) => resolve(streamOf(incoming)));
  });
}

function streamOf(incoming: IncomingMessage): Stream {
  const chunks: Buffer[] = [];
  const waiting = new Set<() => void>();
  const text = (): string => Buffer.concat(chunks).toString('utf8');
  let hasEnded = false;
  incoming.on('data', (chunk: Buffer) => {
    chunks.push(chunk);
    waiting.forEach((check) => check());
  });
  incoming.on('error', () => {}); // a cut is seen as isComplete false
  const status = incoming.statusCode ?? 0;
  return {
    leave: () => incoming.destroy(),
    seen: (events) =>
      new Promise((resolve, reject) => {
        const check = (): void => {
          if (eventsOf(text()).length >= events) resolve();
          else if (hasEnded) reject(new Error(`ended with status ${status} before event ${events}: ${text()}`));
          else return;
          waiting.delete(check);
        };
        waiting.add(check);
        check();
      }),
    answer: new Promise((resolve) => {
      incoming.once('close', () => {
        hasEnded = true;
        waiting.forEach((check) => check());
        resolve({ status, headers: incoming.headers, body: text(), isComplete: incoming.complete });
      });
    }),
  };
}

/** The data of each whole event, `[DONE]` included. */
export function eventsOf(body: string): string[] {
  return body
    .split('\n\n')
    .slice(0, -1)
    .map((event) => event.replace(/^event: .*\n/, ''))
    .filter((event) => event.startsWith('data: '))
    .map((event) => event.slice('data: '.length));
}
