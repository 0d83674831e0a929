import { type IncomingMessage, request as requestPlain } from 'node:http';
import { type RequestOptions, request as requestTls } from 'node:https';
import { cameWithin } from '../../kit/came-within.ts';
import type { KubeAccess } from './kube-access.ts';

/** The API server sent an error. */
export class KubeError extends Error {
  readonly status: number;
  readonly retryAfterMs: number;

  constructor(status: number, message: string, retryAfterMs = 0) {
    super(message);
    this.status = status;
    this.retryAfterMs = retryAfterMs;
  }
}

/** Larger than any page or event: a pod has at most 1.5 MB in etcd. */
const MAX_BYTES = 128 * 2 ** 20;
/** TCP keep-alive begins after this time and ends a dead connection ten seconds later, which nothing else detects. */
const KEEP_ALIVE_MS = 15_000;
const HEAD_MS = 30_000;

export interface AskOptions {
  readonly signal: AbortSignal;
  /** Silence within a response after which the connection counts as dead. */
  readonly silenceMs: number;
  /** How long a response may take to begin. */
  readonly headMs?: number;
  /** Default: GET. */
  readonly method?: 'POST' | 'PUT';
  /** Of a POST or PUT. */
  readonly body?: object;
}

/** Sends a request to the API server. @returns the response, unread; rejects unless its status is 200 or 201 */
async function open(access: KubeAccess, path: string, options: AskOptions): Promise<IncomingMessage> {
  const { signal, silenceMs, headMs = HEAD_MS, method = 'GET', body } = options;
  const { server } = access;
  const given = await credentials(access, headMs);
  const send = server.protocol === 'http:' ? requestPlain : requestTls;
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    const base = server.pathname.replace(/\/+$/, '');
    let answering: IncomingMessage | null = null;
    const asked = send({
      ...given,
      hostname: server.hostname.replace(/^\[|\]$/g, ''),
      port: server.port,
      path: base + path,
      method,
      headers: {
        ...given.headers,
        accept: 'application/json',
        'user-agent': 'turnout',
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      // One connection per request, because a pooled one may be dead.
      agent: given.agent ?? false,
      timeout: headMs,
      signal,
    });
    asked.on('socket', (socket) => socket.setKeepAlive(true, KEEP_ALIVE_MS));
    asked.on('timeout', () => (answering ?? asked).destroy(new Error('the API server sent nothing')));
    asked.on('response', (message) => {
      answering = message;
      asked.setTimeout(silenceMs);
      resolve(message);
    });
    asked.on('error', reject);
    // Node emits no `response` for 101 (Switching Protocols).
    asked.on('close', () => reject(new Error('the API server closed the connection without a response')));
    asked.end(body === undefined ? undefined : JSON.stringify(body));
  });
  if (answer.statusCode === 200 || answer.statusCode === 201) return answer;
  const text = await readText(answer);
  const seconds = Number(answer.headers['retry-after'] ?? 0);
  throw new KubeError(answer.statusCode ?? 0, wordsOf(text, answer.statusCode), seconds > 0 ? seconds * 1000 : 0);
}

/** Credentials may come from a command that hangs. */
async function credentials(access: KubeAccess, withinMs: number): Promise<RequestOptions> {
  const options = access.options();
  if (await cameWithin(withinMs, options)) return options;
  throw new Error(`no credentials within ${withinMs / 1000} s`);
}

/** What the API server responds with to a GET, or to another method. Rejects with a `KubeError` for its errors. */
export async function askJson(access: KubeAccess, path: string, options: AskOptions): Promise<unknown> {
  return JSON.parse(await readText(await open(access, path, options)));
}

/** Reads JSON lines as they arrive, one array per read. Ends with the response; throws if that is truncated. */
export async function* getLines(
  access: KubeAccess,
  path: string,
  options: AskOptions,
): AsyncGenerator<unknown[], void, void> {
  const answer = await open(access, path, options);
  yield []; // Accepted; from now on it is as long as it lasts.
  let rest: Buffer[] = [];
  let restBytes = 0;
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    const end = chunk.lastIndexOf(0x0a);
    if (end < 0) {
      rest.push(chunk);
      restBytes += chunk.length;
      if (restBytes > MAX_BYTES) throw new Error('an event is too large');
      continue;
    }
    const text = Buffer.concat([...rest, chunk.subarray(0, end)]).toString('utf8');
    rest = [chunk.subarray(end + 1)];
    restBytes = rest[0]!.length;
    const lines = text.split('\n').filter((line) => line.trim() !== '');
    if (lines.length > 0) yield lines.map((line) => JSON.parse(line) as unknown);
  }
}

async function readText(answer: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of answer as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_BYTES) throw new Error('the response is too large');
    parts.push(chunk);
  }
  return Buffer.concat(parts).toString('utf8');
}

/** Errors of the API server are `Status` objects; those of a proxy before it may be anything. */
function wordsOf(text: string, status: number | undefined): string {
  try {
    const { message } = JSON.parse(text) as { message?: unknown };
    if (typeof message === 'string') return `${status}: ${message}`;
  } catch {
    // Not JSON.
  }
  return `status ${status}`;
}
