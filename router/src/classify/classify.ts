import { randomBytes } from 'node:crypto';
import type { Dialect, Exchange } from '../exchange.ts';
import { normalPath } from './path.ts';

const idPrefix = `req-${randomBytes(9).toString('base64url')}-`;
let idCount = 0;

/** What an id of a client may look like to be passed on; anything else is replaced, since ids end up in logs. */
const SAFE_ID = /^[\x21-\x7e]{1,256}$/;

/** Fills in what the request's head tells. The body is not looked at: nothing here needs it. */
export function classify(x: Exchange): void {
  const { head } = x;
  x.path = normalPath(head.target);
  x.dialect = dialectOf(x.path);
  if (head.requestId === '' || !SAFE_ID.test(head.requestId)) {
    if (head.hasRequestIdLine) head.drop('x-request-id');
    head.requestId = idPrefix + (idCount++).toString(36);
    x.isRequestIdOurs = true;
  }
}

export function dialectOf(path: string): Dialect {
  if (path.startsWith('/v1/') || path.startsWith('/inference/')) return 'openai';
  return path === '/generate' || path === '/encode' || path === '/classify' ? 'sglang' : 'plain';
}
