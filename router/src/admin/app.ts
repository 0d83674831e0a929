import { Hono } from 'hono';
import { z } from 'zod';
import type { Breakers, ForcedState } from '../fleet/breakers.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';
import type { MetricsText } from '../observe/metrics-server.ts';
import { parseJson } from './parse-json.ts';
import { type PolicyControl, addPolicyRoutes } from './policies.ts';

/** What the control API reads and steers. */
export interface AdminContext {
  readonly fleet: Fleet;
  readonly breakers: Breakers;
  readonly metricsText: MetricsText;
  readonly isDraining: () => boolean;
  readonly policies: PolicyControl;
}

/** `POST /workers`, as today's SGLang gateway takes it. Fields that have no effect here are kept and shown again. */
const newWorker = z.looseObject({
  url: z.string().min(1),
  worker_type: z.enum(['regular', 'prefill', 'decode']).default('regular'),
  // Of a prefill engine: where its decode engines meet it.
  bootstrap_port: z.int().min(1).max(65_535).nullish(),
  labels: z.record(z.string(), z.string()).default({}),
  // For this worker, in place of --worker-api-key. Never shown again, so not among the labels.
  api_key: z
    .string()
    .regex(/^[\x21-\x7e]+$/, 'a key is made of visible ASCII characters, without spaces')
    .nullish(),
});

/** `POST /workers/{id}/breaker`: what the breaker is from now on; `auto`: what it finds itself. */
const forcedBreaker = z.strictObject({ state: z.enum(['open', 'closed', 'auto'] satisfies ForcedState[]) });

const UUID = /^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/i;

/** The router's own endpoints: fleet, health, metrics. Everything else goes to the engines. */
export function createAdminApp({ fleet, breakers, metricsText, isDraining, policies }: AdminContext): Hono {
  const app = new Hono();
  const inFlightByUrl = () => Object.fromEntries(fleet.workers.map((worker) => [worker.url, fleet.load(worker)]));
  const healthyCount = () => fleet.workers.filter((worker) => worker.isHealthy).length;
  /** Of pairs it takes one of each. */
  const canServe = (): boolean =>
    (fleet.servesPairs ? (['prefill', 'decode'] as const) : (['regular'] as const)).every((role) =>
      fleet.workers.some((worker) => worker.role === role && worker.isHealthy),
    );

  app.get('/health', (c) => c.text('OK'));
  app.get('/liveness', (c) => c.text('OK'));
  app.get('/readiness', (c) => {
    const healthy = healthyCount();
    const counts = { healthy_workers: healthy, total_workers: fleet.workers.length };
    if (isDraining()) return c.json({ status: 'not ready', reason: 'shutting down', ...counts }, 503);
    return canServe()
      ? c.json({ status: 'ready', ...counts })
      : c.json({ status: 'not ready', reason: 'insufficient healthy workers', ...counts }, 503);
  });
  app.get('/metrics', async (c) => {
    const { contentType, text } = await metricsText();
    return c.body(text, 200, { 'content-type': contentType });
  });
  app.get('/get_loads', (c) =>
    c.json({ workers: fleet.workers.map((worker) => ({ worker: worker.url, load: fleet.load(worker) })) }),
  );

  // SlimeRouter's form.
  const urlOf = async (request: { query(name: string): string | undefined; text(): Promise<string> }) => {
    const fromQuery = request.query('url') ?? request.query('worker_url');
    if (fromQuery !== undefined && fromQuery !== '') return fromQuery;
    const body = parseJson(await request.text());
    const found = z.looseObject({ url: z.string().optional(), worker_url: z.string().optional() }).safeParse(body);
    return found.success ? (found.data.url ?? found.data.worker_url ?? '') : '';
  };
  const noUrl = { error: 'worker_url is required (use query ?url=... or JSON body)' };
  app.post('/add_worker', async (c) => {
    const url = await urlOf(c.req);
    if (url === '') return c.json(noUrl, 400);
    const worker = fleet.add(url);
    if (typeof worker === 'string') return c.json({ error: worker }, 400);
    return c.json({ status: 'success', worker_urls: inFlightByUrl() });
  });
  /** It finishes what it has, or by force it doesn't. */
  const remove = (worker: Worker, force: string | undefined): void => {
    fleet.remove(worker);
    if (force === 'true' || force === '1') worker.pool.breakAll();
  };
  app.post('/remove_worker', async (c) => {
    const url = await urlOf(c.req);
    if (url === '') return c.json(noUrl, 400);
    const worker = fleet.get(url);
    if (worker !== undefined) remove(worker, c.req.query('force'));
    return c.json({ status: 'success', worker_urls: inFlightByUrl() });
  });
  app.get('/list_workers', (c) => c.json({ urls: fleet.workers.map((worker) => worker.url) }));

  // The SGLang gateway's form, which slime uses to register and to find ids.
  const notFound = { error: 'Worker not found', code: 'WORKER_NOT_FOUND' };
  const byId = (id: string): Worker | undefined => fleet.workers.find((worker) => worker.id === id);
  app.get('/workers', (c) => {
    const count = (role: string) => fleet.workers.filter((worker) => worker.role === role).length;
    return c.json({
      workers: fleet.workers.map((worker) => describe(fleet, breakers, worker)),
      total: fleet.workers.length,
      stats: {
        prefill_count: count('prefill'),
        decode_count: count('decode'),
        regular_count: count('regular'),
      },
    });
  });
  app.post('/workers', async (c) => {
    const body = newWorker.safeParse(parseJson(await c.req.text()));
    if (!body.success) return c.json({ error: z.prettifyError(body.error), code: 'BAD_REQUEST' }, 400);
    const { url, worker_type: role, bootstrap_port: bootstrapPort, labels, api_key: apiKey, ...rest } = body.data;
    // Without a prototype: the names in it are the caller's.
    const all = Object.create(null) as Record<string, string>;
    for (const [key, value] of Object.entries(rest)) all[key] = String(value);
    const worker = fleet.add(url, {
      role,
      ...(bootstrapPort === undefined ? {} : { bootstrapPort }),
      labels: Object.assign(all, labels),
      apiKey: apiKey ?? undefined,
    });
    if (typeof worker === 'string') return c.json({ error: worker, code: 'BAD_REQUEST' }, 400);
    const location = `/workers/${worker.id}`;
    const accepted = { status: 'accepted', worker_id: worker.id, url: worker.url, location };
    return c.json({ ...accepted, message: 'Worker added; its health decides when it serves' }, 202, { location });
  });
  app.get('/workers/:id{.+}', (c) => {
    const id = c.req.param('id');
    if (!UUID.test(id)) return c.json({ error: 'The worker id is not a UUID', code: 'BAD_REQUEST' }, 400);
    const worker = byId(id);
    return worker === undefined ? c.json(notFound, 404) : c.json(describe(fleet, breakers, worker));
  });
  app.delete('/workers/:id{.+}', (c) => {
    const id = c.req.param('id');
    if (!UUID.test(id)) return c.json({ error: 'The worker id is not a UUID', code: 'BAD_REQUEST' }, 400);
    const worker = byId(id);
    if (worker === undefined) return c.json(notFound, 404);
    remove(worker, c.req.query('force'));
    return c.json({ status: 'accepted', worker_id: id, message: 'Worker removed; it finishes what it has' }, 202);
  });

  app.post('/workers/:id/breaker', async (c) => {
    const worker = byId(c.req.param('id'));
    if (worker === undefined) return c.json(notFound, 404);
    const body = forcedBreaker.safeParse(parseJson(await c.req.text()));
    if (!body.success) return c.json({ error: z.prettifyError(body.error), code: 'BAD_REQUEST' }, 400);
    breakers.force(worker, body.data.state);
    return c.json(describe(fleet, breakers, worker));
  });

  addPolicyRoutes(app, policies);

  const ownPaths = new Set(app.routes.map(({ path }) => path));
  app.notFound((c) => {
    const allow = app.routes.filter(
      ({ path }) => path === c.req.path || (path.includes(':') && !ownPaths.has(c.req.path)),
    );
    const methods = [...new Set(allow.map(({ method }) => method))].join(', ');
    return c.json({ error: `This path takes ${methods}` }, 405, { allow: methods });
  });
  app.onError((error, c) => c.json({ error: error.message, code: 'internal_error' }, 500));
  return app;
}

/** Whether a path is the router's own. Decided on the normal form, before any worker is thought of. */
export function ownPathTest(app: Hono): (path: string) => boolean {
  const exact = new Set(app.routes.map(({ path }) => path).filter((path) => !path.includes(':')));
  const prefixes = app.routes
    .filter(({ path }) => path.includes(':'))
    .map(({ path }) => path.slice(0, path.indexOf(':')));
  return (path) => exact.has(path) || prefixes.some((prefix) => path.startsWith(prefix));
}

function describe(fleet: Fleet, breakers: Breakers, worker: Worker) {
  const { labels } = worker;
  return {
    id: worker.id,
    url: worker.url,
    model_id: labels['model_id'] ?? 'unknown',
    priority: Number(labels['priority'] ?? 50),
    cost: Number(labels['cost'] ?? 1),
    worker_type: worker.role,
    bootstrap_port: worker.bootstrapPort,
    dp_rank: worker.rank,
    is_healthy: worker.isHealthy,
    circuit_breaker: breakers.stateOf(worker),
    load: fleet.load(worker),
    connection_mode: 'http',
    metadata: labels,
    engine: worker.engine,
    weight_version: worker.weightVersion,
    not_serving_because: worker.reasonNames(),
  };
}
