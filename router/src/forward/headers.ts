import type { Exchange } from '../exchange.ts';
import type { Worker } from '../fleet/worker.ts';
import { reasonText } from '../choose/reason-text.ts';
import type { ResponseHead } from '../wire/response-head.ts';
import type { RequestHead } from '../wire/request-head.ts';

/** What the forwarding headers say of the client (`--forwarded-headers`). */
export interface ForwardedInfo {
  readonly clientAddress: string;
  readonly scheme: 'http' | 'https';
}

/** Fields that have keys of clients. The engine's key replaces all: with two the router and the engine might read different ones. */
export const KEY_FIELDS: readonly string[] = ['authorization', 'x-api-key'];
const KEY_LINES = new RegExp(`^(?:${KEY_FIELDS.join('|')}):[^\\r]*\\r\\n`, 'gim');

/**
 * The head that goes to the worker: the client's own lines, its Host replaced by the worker's, and the framing of what
 * follows. `bodyBytes`: length of a body that is known to differ from the client's framing; -1: as the client framed it.
 */
export function upstreamHead(x: Exchange, worker: Worker, bodyBytes: number): string {
  const { head } = x;
  if (bodyBytes >= 0) head.drop('content-length');
  // `OPTIONS *` is about the server, not about a path on it (RFC 9112 section 3.2.4).
  const target = head.target === '*' ? '*' : worker.basePath + (x.engineTarget ?? head.target);
  const { authorization } = worker.key;
  const fields =
    authorization === ''
      ? head.passedOn()
      : `${head.passedOn().replace(KEY_LINES, '')}authorization: ${authorization}\r\n`;
  let out = `${head.method} ${target} HTTP/1.1\r\nhost: ${worker.authority}\r\n${fields}${x.traceLine ?? ''}`;
  if (x.isRequestIdOurs) {
    out += `x-request-id: ${head.requestId}\r\n`;
    if (head.idHeader !== '') out += `${head.idHeader}: ${head.requestId}\r\n`;
  } else if (!head.hasRequestIdLine) out += `x-request-id: ${head.requestId}\r\n`;
  // vLLM reads it on every path, SGLang on OpenAI's. A client's own value stays.
  if (worker.rank !== null && !x.isForEngine && head.get('x-data-parallel-rank') === undefined) {
    out += `x-data-parallel-rank: ${worker.rank}\r\n`;
  }
  if (bodyBytes >= 0) out += `content-length: ${bodyBytes}\r\n`;
  else if (head.isChunked) out += 'transfer-encoding: chunked\r\n';
  return `${out}\r\n`;
}

/** Adds the forwarding headers to a request (`--forwarded-headers`); values of an earlier proxy are kept and extended. */
export function addForwarded(head: RequestHead, { clientAddress, scheme }: ForwardedInfo): void {
  const before = head.get('x-forwarded-for');
  const via = head.get('via');
  const host = head.get('x-forwarded-host') ?? head.get('host') ?? '';
  const proto = head.get('x-forwarded-proto') ?? scheme;
  for (const name of ['x-forwarded-for', 'x-forwarded-host', 'x-forwarded-proto', 'via']) head.drop(name);
  head.add(
    `x-forwarded-for: ${before === undefined ? '' : `${before}, `}${clientAddress}\r\n` +
      `x-forwarded-proto: ${proto}\r\nx-forwarded-host: ${host}\r\n` +
      `via: ${via === undefined ? '' : `${via}, `}1.1 turnout\r\n`,
  );
}

/** Adds the URL of the worker, and why it was chosen, to a response (`--worker-header`). */
export function nameWorker(x: Exchange, head: ResponseHead): void {
  for (const name of ['x-turnout-worker', 'x-turnout-reason']) head.drop(name);
  head.add(`x-turnout-worker: ${x.worker!.url}\r\nx-turnout-reason: ${reasonText(x)}\r\n`);
}
