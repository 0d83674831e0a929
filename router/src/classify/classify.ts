import { randomBytes } from 'node:crypto';
import type { Dialect, Exchange } from '../exchange.ts';
import { normalPath } from './path.ts';

const idPrefix = `req-${randomBytes(9).toString('base64url')}-`;
let idCount = 0;

/** What an id of a client may look like to be passed on; anything else is replaced, since ids end up in logs. */
const SAFE_ID = /^[\x21-\x7e]{1,256}$/;

const NO_HEADERS: readonly string[] = [];

/**
 * Fills in what the request's head tells. The body is not looked at: nothing here needs it.
 *
 * @param idHeaders further headers that carry the id of a request, the one to be believed first first
 */
export function classify(x: Exchange, idHeaders: readonly string[] = NO_HEADERS): void {
  const { head } = x;
  x.path = normalPath(head.target);
  x.dialect = dialectOf(x.path);
  if (idHeaders.length > 0) {
    readIdHeaders(x, idHeaders);
    return;
  }
  if (head.requestId === '' || !SAFE_ID.test(head.requestId)) {
    if (head.hasRequestIdLine) head.drop('x-request-id');
    head.requestId = nextId();
    x.isRequestIdOurs = true;
  }
}

/** The first id that can be believed is the request's. Its own line goes to the engine as it came. */
function readIdHeaders(x: Exchange, names: readonly string[]): void {
  const { head } = x;
  const own = head.requestId;
  if (head.hasRequestIdLine && !SAFE_ID.test(own)) {
    head.drop('x-request-id');
    head.hasRequestIdLine = false;
  }
  for (const name of names.includes('x-request-id') ? names : [...names, 'x-request-id']) {
    const id = name === 'x-request-id' ? own : (head.get(name) ?? '');
    if (!SAFE_ID.test(id)) continue;
    head.requestId = id;
    if (name !== 'x-request-id') head.idHeader = name;
    return;
  }
  head.requestId = nextId();
  x.isRequestIdOurs = true;
  const first = names[0]!;
  if (first === 'x-request-id') return;
  head.drop(first);
  head.idHeader = first;
}

const nextId = (): string => idPrefix + (idCount++).toString(36);

export function dialectOf(path: string): Dialect {
  if (path.startsWith('/v1/') || path.startsWith('/inference/')) return 'openai';
  return path === '/generate' || path === '/encode' || path === '/classify' ? 'sglang' : 'plain';
}
