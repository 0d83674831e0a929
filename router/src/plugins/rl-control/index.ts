import type { Context } from 'hono';
import { normalPath } from '../../classify/classify.ts';
import type { ControlPaths } from '../../engines/controls.ts';
import { isGeneration } from '../../engines/generation.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import type { Dispatch } from '../../listen/dispatch.ts';
import type { Plugin } from '../../plugin.ts';
import { type EngineRequest, callAll, callEngine, fanOutJson, outcomeJson } from './engine-calls.ts';
import { enginesOf, labelsOf, rowOf } from './engine-rows.ts';
import { parseSelector } from './selector.ts';

/** Engines load weights for minutes; the client sets the limit. */
const MAX_WAIT_MS = 2 ** 31 - 1;
/** Bodies of weight updates have handles of tensors. */
const MAX_BODY_BYTES = 268_435_456;
const MAX_SEGMENTS = 4;
const passedOn = ['content-type', 'x-request-id', 'traceparent', 'tracestate', 'x-turnout-timeout'];
const JSON_TYPE = { 'content-type': 'application/json' };

interface Parts {
  readonly fleet: Fleet;
  readonly dispatch: Dispatch;
  readonly paths: ControlPaths;
  /** Set when all endpoints are known. */
  readonly own: { readonly isOwn: (path: string) => boolean };
}

/**
 * The API with which clients of the SGLang Model Gateway (smg 1.13 with `--enable-rl`) list and control engines. Requests to engines take
 * the way of any other control request.
 */
export const rlControl = ({ fleet, dispatch, paths, own }: Parts): Plugin => ({
  name: 'rl-control',
  // Only for its routes.
  pathPrefix: '/v1/rl/',
  appliesTo: () => false,
  timeoutMs: MAX_WAIT_MS,
  maxBodyBytes: MAX_BODY_BYTES,
  routes({ forAdmins: app }) {
    app.get('/v1/rl/workers', (c) => {
      const workers = enginesOf(fleet).map(rowOf);
      return c.json({ protocol_version: 1, workers, total: workers.length });
    });

    app.get('/v1/rl/workers/:id', (c) => {
      const found = engineNamed(c);
      return found instanceof Response ? found : c.json(rowOf(found));
    });

    app.on(['GET', 'POST'], '/v1/rl/workers/:id/engine/:path{.+}', async (c) => {
      const engine = engineNamed(c);
      if (engine instanceof Response) return engine;
      const request = await requestOf(c, own.isOwn);
      if (request instanceof Response) return request;
      const { worker } = engine;
      const outcome = await callEngine(dispatch, worker, request);
      if ('code' in outcome) {
        const { code, message } = outcome;
        const status = code === 'upstream_timeout' ? 504 : 502;
        return c.json({ error: code, message, worker_id: worker.id, url: worker.url }, status);
      }
      return c.body(outcomeJson(worker, outcome), outcome.status as 200, JSON_TYPE);
    });

    app.on(['GET', 'POST'], '/v1/rl/engine/:path{.+}', async (c) => {
      const text = c.req.query('selector')?.trim() ?? '';
      if (text === '') return refusal(c, 'selector_required', 'The query needs selector=…, for example engine=sglang.');
      const isSelected = parseSelector(text);
      if (typeof isSelected !== 'function') {
        return refusal(c, 'invalid_selector', `The selector is wrong at ${isSelected.offset}: ${isSelected.message}.`, {
          offset: isSelected.offset,
        });
      }
      const request = await requestOf(c, own.isOwn);
      if (request instanceof Response) return request;
      const engines = enginesOf(fleet);
      const selected = engines.filter((engine) => isSelected(labelsOf(rowOf(engine)))).map(({ worker }) => worker);
      if (selected.length === 0) {
        return refusal(c, 'no_workers_match', `No engine matches the selector ${text}.`, { selector: text });
      }
      const path = normalPath(request.path);
      const isForAll = selected.length === engines.length && paths.of(path, request.method).goesToAll;
      const outcomes = isForAll
        ? await callAll(dispatch, selected, request)
        : await Promise.all(
            selected.map(async (worker) => [worker, await callEngine(dispatch, worker, request)] as const),
          );
      const { status, json } = fanOutJson(outcomes);
      return c.body(json, status, JSON_TYPE);
    });

    /** The id of any rank names the engine. */
    function engineNamed(c: Context): ReturnType<typeof enginesOf>[number] | Response {
      const id = c.req.param('id') ?? '';
      const worker = fleet.workers.find((each) => each.id === id);
      if (worker === undefined) return refusal(c, 'worker_not_found', `No worker has the id ${id}.`, { id }, 404);
      return { worker, ranks: fleet.workers.filter(({ engineUrl }) => engineUrl === worker.engineUrl).length };
    }
  },
});

const refusal = (c: Context, error: string, message: string, more: object = {}, status: 400 | 404 = 400): Response =>
  c.json({ error, message, ...more }, status);

async function requestOf(c: Context, isOwn: (path: string) => boolean): Promise<EngineRequest | Response> {
  const path = c.req.param('path') ?? '';
  if (path.split('/').length > MAX_SEGMENTS || !/^[\w./-]+$/.test(path)) {
    return refusal(
      c,
      'invalid_engine_path',
      `The engine path ${path} has other characters than A-Z a-z 0-9 . _ - or more than 4 parts.`,
    );
  }
  if (isOwn(`/${path}`)) {
    return refusal(c, 'invalid_engine_path', `The router itself answers /${path}: send this request to the engine.`);
  }
  if (isGeneration(c.req.method, `/${path}`)) {
    return refusal(c, 'invalid_engine_path', `/${path} generates: send this request to the router's own /${path}.`);
  }
  const query = new URL(c.req.url).search
    .slice(1)
    .split('&')
    .filter((pair) => pair !== '' && pair.split('=', 1)[0] !== 'selector');
  const body = new Uint8Array(await c.req.arrayBuffer());
  const headers: Record<string, string> = body.length > 0 ? { 'content-type': 'application/json' } : {};
  for (const name of passedOn) {
    const value = c.req.header(name);
    if (value !== undefined) headers[name] = value;
  }
  return { method: c.req.method, path: `/${path}${query.length === 0 ? '' : `?${query.join('&')}`}`, headers, body };
}
