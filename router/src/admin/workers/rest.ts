import type { Context, Hono } from 'hono';
import * as z from 'zod';
import type { ForcedState } from '../../fleet/breakers.ts';
import type { Worker } from '../../fleet/worker.ts';
import { checkJson } from '../../config/check-input.ts';
import { type WorkersContext, removeWorker } from './context.ts';
import { describe, describeBriefly } from './describe.ts';

/** `POST /workers/{id}/breaker`. `auto`: the breaker decides. */
const forcedBreaker = z.strictObject({ state: z.enum(['open', 'closed', 'auto'] satisfies ForcedState[]) });

const drain = z.strictObject({ state: z.enum(['on', 'off']) });

const UUID = /^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/i;

/** A normalised path has no empty segments: `http://` in it has lost a slash. */
const urlIn = (id: string): string => id.replace(/^(https?):\/+/i, '$1://');

type IdContext = Context<object, '/workers/:id'>;

const notFound = (c: IdContext, id: string): Response =>
  c.json({ error: `Worker ${id} not found`, code: 'WORKER_NOT_FOUND' }, 404);

/** `/workers` as in the SGLang gateway, which slime uses, or as in vllm-router. */
export function addRestRoutes(app: Hono, context: WorkersContext): void {
  const { fleet, breakers, health, workerApi } = context;
  const isVllm = workerApi === 'vllm';

  /** Runs `act` with the worker that the path names by its id, or with `--worker-api vllm` by its URL. */
  type Act = (c: IdContext, worker: Worker) => Response | Promise<Response>;
  const withWorker =
    (act: Act, isLeavingToo: 'also draining' | null = null) =>
    (c: IdContext) => {
      const id = c.req.param('id');
      const among = isLeavingToo === null ? fleet.workers : [...fleet.workers, ...fleet.leaving];
      const worker = among.find((each) => each.id === id) ?? (isVllm ? fleet.get(urlIn(id)) : undefined);
      if (worker !== undefined) return act(c, worker);
      if (!isVllm && !UUID.test(id)) {
        return c.json({ error: `Invalid worker_id '${id}' (expected UUID)`, code: 'BAD_REQUEST' }, 400);
      }
      return notFound(c, isVllm ? urlIn(id) : id);
    };

  app.get('/workers', (c) => {
    const workers = [...fleet.workers, ...fleet.leaving];
    const count = (role: string) => workers.filter((worker) => worker.role === role).length;
    return c.json({
      workers: workers.map((worker) => describe(context, worker)),
      total: workers.length,
      stats: { prefill_count: count('prefill'), decode_count: count('decode'), regular_count: count('regular') },
    });
  });

  app.post('/workers', async (c) => {
    const code = isVllm ? 'ADD_WORKER_FAILED' : 'BAD_REQUEST';
    const body = checkJson(newWorker, await c.req.text());
    if (body.problem !== null) return c.json({ error: body.problem, code }, 400);
    const { url, worker_type, bootstrap_port: bootstrapPort, labels, api_key: apiKey, ...rest } = body.data;
    const [known] = isVllm ? fleet.named(url) : [];
    if (known !== undefined) return c.json({ error: `Worker ${known.url} already exists`, code }, 400);
    const role = worker_type ?? 'regular';
    const worker = fleet.add(url, {
      role,
      ...(bootstrapPort === undefined ? {} : { bootstrapPort }),
      labels: labelsFrom(rest, labels ?? {}),
      apiKey: apiKey ?? undefined,
    });
    if (typeof worker === 'string') return c.json({ error: worker, code }, 400);
    if (isVllm) return c.json({ success: true, message: `Successfully added worker: ${worker.url}` });
    const location = `/workers/${worker.id}`;
    const accepted = { status: 'accepted', worker_id: worker.id, url: worker.url, location };
    return c.json({ ...accepted, message: 'Worker added; its health decides when it serves' }, 202, { location });
  });

  app.get(
    '/workers/:id{.+}',
    withWorker((c, worker) => c.json((isVllm ? describeBriefly : describe)(context, worker)), 'also draining'),
  );

  const change = withWorker(async (c, worker) => {
    const body = checkJson(changedWorker, await c.req.text());
    if (body.problem !== null) return c.json({ error: body.problem, code: 'BAD_REQUEST' }, 400);
    const { url, worker_type: role, bootstrap_port: bootstrapPort, labels, api_key: apiKey, ...rest } = body.data;
    // A different role or URL is another worker: requests in flight are counted by worker.
    const isOther = (role ?? worker.role) !== worker.role || (typeof url === 'string' && fleet.get(url) !== worker);
    if (isOther) {
      const error = 'The url and the worker_type of a worker can not be changed: remove the worker and add it again';
      return c.json({ error, code: 'BAD_REQUEST' }, 400);
    }
    fleet.setLabels(worker, labelsFrom(rest, labels ?? {}, worker.labels));
    if (bootstrapPort !== undefined) worker.bootstrapPort = bootstrapPort;
    if (typeof apiKey === 'string') worker.key = { authorization: `Bearer ${apiKey}` };
    return c.json({ status: 'accepted', worker_id: worker.id, message: 'Worker updated' }, 202);
  });
  app.put('/workers/:id{.+}', change);
  app.patch('/workers/:id{.+}', change);

  const remove = withWorker((c, worker) => {
    removeWorker(fleet, worker, c.req.query('force'));
    return c.json(
      { status: 'accepted', worker_id: worker.id, message: 'Worker removed; it finishes what it has' },
      202,
    );
  }, 'also draining');
  const removeByUrl = (c: IdContext) => {
    const url = urlIn(c.req.param('id'));
    const named = fleet.named(url);
    if (named.length === 0) return notFound(c, url);
    for (const worker of named) removeWorker(fleet, worker, c.req.query('force'));
    return c.json({ success: true, message: `Worker ${url} removed successfully` });
  };
  app.delete('/workers/:id{.+}', isVllm ? removeByUrl : remove);

  app.post(
    '/workers/:id{.+}/breaker',
    withWorker(async (c, worker) => {
      const body = checkJson(forcedBreaker, await c.req.text());
      if (body.problem !== null) return c.json({ error: body.problem, code: 'BAD_REQUEST' }, 400);
      breakers.force(worker, body.data.state);
      return c.json(describe(context, worker));
    }),
  );
  app.post(
    '/workers/:id{.+}/drain',
    withWorker(async (c, worker) => {
      const body = checkJson(drain, await c.req.text());
      if (body.problem !== null) return c.json({ error: body.problem, code: 'BAD_REQUEST' }, 400);
      fleet.setReason(worker, 'draining', body.data.state === 'on');
      return c.json(describe(context, worker));
    }),
  );
  app.post(
    '/workers/:id{.+}/quarantine',
    withWorker((c, worker) => {
      if (health.quarantine(worker)) return c.json(describe(context, worker));
      const error = 'Without health checks (--disable-health-check) a worker cannot prove itself: drain it instead';
      return c.json({ error, code: 'BAD_REQUEST' }, 409);
    }),
  );
}

/** null or absent: no port. */
const bootstrapPort = z.int().min(1).max(65_535).nullish();
const apiKey = z
  .string()
  .regex(/^[\x21-\x7e]+$/, 'a key is made of visible ASCII characters, without spaces')
  .nullish();
const known = {
  worker_type: z.enum(['regular', 'prefill', 'decode']).nullish(),
  model_id: z.string().nullish(),
  priority: z.int().min(0).nullish(),
  cost: z.number().min(0).nullish(),
  bootstrap_port: bootstrapPort,
  // Replaces --worker-api-key for this worker. It is never shown, so it is not a label.
  api_key: apiKey,
};

/** `POST /workers` of the SGLang gateway. Fields without effect here are kept as labels. */
export const newWorker = z.looseObject({
  ...known,
  url: z.string().min(1),
  labels: z.record(z.string(), z.string()).nullish(),
});

/** `PUT` and `PATCH /workers/{id}`. Absent fields stay; null removes a label. */
const changedWorker = z.looseObject({
  ...known,
  url: z.string().nullish(),
  labels: z.record(z.string(), z.string().nullable()).nullish(),
});

/** @param before the labels so far */
function labelsFrom(
  fields: Readonly<Record<string, unknown>>,
  labels: Readonly<Record<string, string | null>>,
  before: Readonly<Record<string, string>> = {},
): Readonly<Record<string, string>> {
  // No prototype: the caller chooses the names.
  const all = Object.create(null) as Record<string, string>;
  Object.assign(all, before);
  const change = (key: string, value: unknown): void => {
    if (value === null) delete all[key];
    else if (value !== undefined) all[key] = typeof value === 'string' ? value : JSON.stringify(value);
  };
  for (const [key, value] of Object.entries(fields)) change(key, value);
  for (const [key, value] of Object.entries(labels)) change(key, value);
  return all;
}
