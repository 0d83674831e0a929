import type { FleetModels } from '../fleet/fleet-models.ts';
import { STATUS_CODES } from 'node:http';
import type { Hono } from 'hono';
import { pathWithNames } from '../classify/classify.ts';
import type { Exchange } from '../exchange.ts';
import { isOpen } from '../admit/authorizer.ts';
import { isOwnQuestion } from '../engines/ask.ts';
import { isSafe } from '../engines/generation.ts';
import { sendError } from '../forward/errors.ts';
import { RouterError } from '../kit/errors.ts';
import type { BodyLimit } from '../wire/request-body.ts';
import { ownHead, ownStreamHead } from '../wire/response-head.ts';
import { pathTest } from '../plugins/endpoints.ts';
import { bufferOf } from '../kit/bytes.ts';
import { PayloadOut } from '../phases/payload-out.ts';

/** No endpoint needs more, and parsing megabytes of JSON blocks the event loop. */
const MAX_BODY_BYTES = 262_144;

/**
 * Converts requests for the router's own endpoints to web `Request`s for the app, and its `Response`s back. @param maxPluginBytes maximum
 * body size of a plugin's endpoint; null: the path is not a plugin's @param orElse responds to requests for other paths; returns false if
 * it does not
 */
export function ownEndpoints(
  app: Hono,
  maxPluginBytes: (path: string) => number | null,
  orElse: (x: Exchange) => boolean,
) {
  // Made at the first request, after plugins have added their endpoints.
  let test: ((path: string) => boolean) | null = null;
  const isOwn = (path: string): boolean => (test ??= pathTest(app.routes.map((route) => route.path)))(path);
  return {
    /** Whether the path is an endpoint of the router, by its normal form. */
    isOwn,
    /** @returns false: the request is for an engine */
    serve: (x: Exchange): boolean => {
      if (isOwnQuestion(x.head)) {
        refuse(x, new RouterError('routing_loop', 'A worker of this router is the router itself: remove the worker.'));
        return true;
      }
      if (!isOwn(x.path)) return orElse(x);
      const { body, head } = x;
      const limit = limitOf(maxPluginBytes(x.path) ?? MAX_BODY_BYTES);
      const isTooLarge = (): boolean => body.bytes > limit.maxBytes;
      const path = pathFor(app, x);
      if (path === null) refuse(x, leadsElsewhere(x.path));
      else if (head.contentLength > limit.maxBytes || isTooLarge()) refuse(x, tooLarge(limit));
      // Nothing of it is used, and the client may have no key.
      else if (isOpen(x.path) && isSafe(head.method)) void answer(app, x, path);
      else {
        body.limit = limit;
        body.whenComplete(() => (isTooLarge() ? refuse(x, tooLarge(limit)) : void answer(app, x, path)));
      }
      return true;
    },
  };
}

const limitOf = (maxBytes: number): BodyLimit => ({
  maxBytes,
  message: `The router's own endpoints take at most ${maxBytes} bytes.`,
});

const tooLarge = ({ message }: BodyLimit): RouterError => new RouterError('payload_too_large', message);

function refuse(x: Exchange, error: RouterError): void {
  sendError(x.sink, error, 'plain');
  x.ownResponseSent();
}

const leadsElsewhere = (path: string): RouterError =>
  new RouterError(
    'bad_request',
    `The name in the path has empty or dot segments, by which the path is ${path}: sessions can be named in the query (/trajectory?session=NAME, /explain?id=NAME).`,
  );

/**
 * Endpoints with the name of a session or a group, which is any text. Others, those of plugins among them, get the normal form: their parameters
 * never have dot segments.
 */
const NAMED = /^\/(?:trajectories|groups|sessions|explain)\//;

/**
 * The path that the app gets. Names may have slashes, which are escaped; the normal form, which decides who may send the request, has lost
 * the empty and dot segments of a name. The path with the whole name leads to the same endpoint, or is not used.
 * @returns null: it leads to another endpoint, of which the normal form has lost the name
 */
function pathFor({ router }: Hono, { head, path }: Exchange): string | null {
  const named = pathWithNames(head.target);
  if (named === path || !NAMED.test(named)) return path;
  const method = head.method === 'HEAD' ? 'GET' : head.method;
  const [whole, normal] = [named, path].map((each) => router.match(method, each)[0].map(([[, route]]) => route));
  if (whole!.length === normal!.length && whole!.every((route, i) => route === normal![i])) return named;
  return whole!.length === 0 || named.replaceAll('%2F', '/') === path ? path : null;
}

async function answer(app: Hono, x: Exchange, path: string): Promise<void> {
  const { head, body, sink } = x;
  try {
    const query = head.target.indexOf('?');
    // Hono drops the body of a response to HEAD without cancelling it: what the body reads from would stay open.
    const isHead = head.method === 'HEAD';
    const request = new Request(`http://turnout${path}${query < 0 ? '' : head.target.slice(query)}`, {
      method: isHead ? 'GET' : head.method,
      headers: head.pairs(),
      ...(head.method === 'GET' || isHead ? {} : { body: new Uint8Array(body.join()) }),
    });
    // The exchange has the tenant whose data the response may contain.
    const made = await app.fetch(request, { exchange: x });
    if (isHead) await made.body?.cancel();
    const response = isHead ? new Response(null, made) : made;
    // A response to HEAD may leave out content-length, but must not state another value than GET would (RFC 9110 section 8.6).
    if (isStreamed(response) || isHead) {
      await streamResponse(response, x);
      return;
    }
    const bytes = Buffer.from(await response.arrayBuffer());
    let fields = '';
    for (const [name, value] of response.headers) if (name !== 'content-length') fields += `${name}: ${value}\r\n`;
    sink.head(ownHead(response.status, STATUS_CODES[response.status] ?? '', fields, bytes.length));
    sink.body(bytes, 0, bytes.length);
    sink.end();
  } catch (error) {
    sendError(sink, new RouterError('internal_error', (error as Error).message), 'plain');
  } finally {
    x.ownResponseSent();
  }
}

/** Responds to `GET /v1/models` with the models of all workers, if the workers serve different ones. */
export function modelList(models: FleetModels): (x: Exchange) => boolean {
  return (x) => {
    if (!models.areSeveral || x.path !== '/v1/models' || x.head.method !== 'GET') return false;
    // No model list is known yet: an engine responds.
    if (models.names().length === 0) return false;
    void models.lookAgain().then(() => {
      const body = Buffer.from(models.list());
      x.sink.head(ownHead(200, 'OK', 'content-type: application/json\r\n', body.length));
      x.sink.body(body, 0, body.length);
      x.sink.end();
      x.ownResponseSent();
    });
    return true;
  };
}

/** Of server-sent events. */
export const EVENT_STREAM_HEADERS = {
  'content-type': 'text/event-stream',
  'cache-control': 'no-store',
  // nginx would keep events back until its buffer is full.
  'x-accel-buffering': 'no',
  // The length is not known: see `isStreamed`.
  'transfer-encoding': 'chunked',
};

/** The length of the response is not known in advance. Event streams of plugins may not say so. */
const isStreamed = ({ headers }: Response): boolean =>
  headers.has('transfer-encoding') || /^text\/event-stream/i.test(headers.get('content-type') ?? '');

/** Sends the response as it is produced, at the pace of the client. A disconnect cancels it. */
async function streamResponse(response: Response, x: Exchange): Promise<void> {
  const { sink } = x;
  let fields = '';
  for (const [name, value] of response.headers) if (name !== 'transfer-encoding') fields += `${name}: ${value}\r\n`;
  sink.head(ownStreamHead(response.status, STATUS_CODES[response.status] ?? '', fields, sink.takesFraming));
  const out = new PayloadOut(sink);
  out.isChunked = true;
  if (response.body === null) {
    sink.end();
    return;
  }
  const reader = response.body.getReader();
  let wake = (): void => {};
  x.activity = {
    abort() {
      void reader.cancel().catch(() => {});
      wake();
    },
  };
  sink.source = { resume: () => wake() };
  try {
    while (x.outcome === null) {
      const { done, value } = await reader.read();
      if (done || x.outcome !== null) break;
      out.pass(bufferOf(value), 0, value.length);
      const { promise, resolve } = Promise.withResolvers<void>();
      wake = resolve;
      if (!sink.flush()) await promise;
    }
    if (x.outcome !== null) return;
    out.end();
    sink.end();
  } catch (error) {
    // Too late for an error response; the client must see that this one is truncated.
    if (x.outcome === null) sink.cut((error as Error).message, '');
  } finally {
    x.activity = null;
    await reader.cancel().catch(() => {});
  }
}
