/** HTTP for a core: collects a body, finds the route, answers unknown routes as the real engines do. */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { steersEngine } from '../../../router/src/engines/controls.ts';
import type { Core } from '../model/core.ts';
import type { Fault } from './faults.ts';
import { HttpCall } from './http-call.ts';

type Handler = (call: HttpCall) => void | Promise<void>;

/** 'METHOD /path' -> handler. */
export type Routes = Readonly<Record<string, Handler>>;

export function createEngineServer(core: Core, routes: Routes): Server {
  const handlers = new Map(Object.entries(routes));
  const paths = new Set([...handlers.keys()].map((key) => key.slice(key.indexOf(' ') + 1)));

  // Rollouts keep connections for hours between turns; only the client or a crash closes them.
  const server = createServer(
    { keepAliveTimeout: 0, requestTimeout: 0, headersTimeout: 60_000 },
    (request, response) => {
      response.on('error', () => {});
      readBody(request, response, core.options.maxBodyBytes, (body) => {
        const [path, query] = splitOnce(request.url ?? '/', '?');
        const call = new HttpCall(core, request, response, query, body);
        const handler = handlers.get(`${request.method} ${path}`);
        if (steersEngine(path)) core.faults.calls.push(request.url ?? '');
        if (handler) void run(handler, call, core.faults.take(path));
        // FastAPI's wording, which both engines use.
        else if (paths.has(path)) call.json(405, { detail: 'Method Not Allowed' });
        else call.json(404, { detail: 'Not Found' });
      });
    },
  );
  server.on('clientError', (_, socket) => socket.destroy());
  return server;
}

async function run(handler: Handler, call: HttpCall, fault: Fault | null): Promise<void> {
  try {
    if (fault === null) await handler(call);
    else await fail(handler, call, fault);
  } catch (error) {
    call.json(500, {
      error: { message: String(error), type: 'InternalServerError', param: null, code: 500 },
    });
  }
}

async function fail(handler: Handler, call: HttpCall, fault: Fault): Promise<void> {
  const { faults, options } = call.core;
  if (fault === 'die') setTimeout(() => faults.die(), (options.weightLoadMs * options.timeScale) / 2);
  if (fault === 'fail_before') return call.text(500, 'injected: not done');
  if (fault === 'deny' || fault === 'pretend')
    return call.json(200, { message: `injected: ${fault}`, success: fault === 'pretend' });
  call.isMute = true;
  if (fault === 'fail_half') await call.core.loadWeights('half written', undefined);
  else await handler(call);
  call.isMute = false;
  if (fault === 'lose_answer') call.drop();
  else if (fault === 'fail_flush')
    call.json(400, { success: false, message: 'Weights were updated, but the cache was not flushed.' });
  else if (fault !== 'die') call.text(500, 'injected: done');
}

function readBody(
  request: IncomingMessage,
  response: ServerResponse,
  maxBytes: number,
  done: (body: Buffer) => void,
): void {
  const parts: Buffer[] = [];
  let bytes = 0;
  request.on('data', (part: Buffer) => {
    bytes += part.length;
    if (bytes <= maxBytes) parts.push(part);
    else if (!response.headersSent) response.writeHead(413, { connection: 'close' }).end();
  });
  request.on('end', () => {
    if (bytes <= maxBytes) done(parts.length === 1 ? parts[0]! : Buffer.concat(parts));
  });
  request.on('error', () => {});
}

function splitOnce(text: string, separator: string): [string, string] {
  const at = text.indexOf(separator);
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
}
