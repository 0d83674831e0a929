import type { Hono, HonoRequest } from 'hono';
import * as z from 'zod';
import { objectIn } from '../../kit/json-object.ts';
import { type WorkersContext, removeWorker } from './context.ts';

const named = z.looseObject({ url: z.string().optional(), worker_url: z.string().optional() });

/** From the query or a JSON body. */
async function urlOf(request: HonoRequest): Promise<string> {
  const fromQuery = request.query('url') ?? request.query('worker_url');
  if (fromQuery !== undefined && fromQuery !== '') return fromQuery;
  const found = named.safeParse(objectIn(await request.text()));
  return found.success ? (found.data.url ?? found.data.worker_url ?? '') : '';
}

export function addUrlRoutes(app: Hono, context: WorkersContext): void {
  app.get('/list_workers', (c) => c.json({ urls: context.fleet.workers.map((worker) => worker.url) }));
  if (context.workerApi === 'slime') addJsonForm(app, context);
  else addTextForm(app, context);
}

/** As in SlimeRouter. */
function addJsonForm(app: Hono, { fleet }: WorkersContext): void {
  const inFlightByUrl = () => Object.fromEntries(fleet.workers.map((worker) => [worker.url, fleet.load(worker)]));
  const noUrl = { error: 'worker_url is required (use query ?url=... or JSON body)' };
  app.post('/add_worker', async (c) => {
    const url = await urlOf(c.req);
    if (url === '') return c.json(noUrl, 400);
    const worker = fleet.add(url);
    if (typeof worker === 'string') return c.json({ error: worker }, 400);
    return c.json({ status: 'success', worker_urls: inFlightByUrl() });
  });
  app.post('/remove_worker', async (c) => {
    const url = await urlOf(c.req);
    if (url === '') return c.json(noUrl, 400);
    for (const worker of fleet.named(url)) removeWorker(fleet, worker, c.req.query('force'));
    return c.json({ status: 'success', worker_urls: inFlightByUrl() });
  });
}

/** As in vllm-router, and in SGLang's router before it had `/workers`. They respond when the worker is up; this router responds at once. */
function addTextForm(app: Hono, { fleet }: WorkersContext): void {
  const noUrl = 'Failed to deserialize query string: missing field `url`';
  app.post('/add_worker', async (c) => {
    const url = await urlOf(c.req);
    if (url === '') return c.text(noUrl, 400);
    const [known] = fleet.named(url);
    if (known !== undefined) return c.text(`Worker ${known.url} already exists`, 400);
    const worker = fleet.add(url);
    return typeof worker === 'string' ? c.text(worker, 400) : c.text(`Successfully added worker: ${worker.url}`);
  });
  app.post('/remove_worker', async (c) => {
    const url = await urlOf(c.req);
    if (url === '') return c.text(noUrl, 400);
    for (const worker of fleet.named(url)) removeWorker(fleet, worker, c.req.query('force'));
    return c.text(`Successfully removed worker: ${url}`);
  });
}
