import { methodsFor } from '../plugins/endpoints.ts';
import type { Context, Hono } from 'hono';
import type { ContentfulStatusCode } from 'hono/utils/http-status';
import * as z from 'zod';
import { checkJson } from '../config/check-input.ts';
import type { Exchange } from '../exchange.ts';
import { copiedTogether } from '../kit/copy-slices.ts';
import { jsonOf, protobufOf } from './encode-result.ts';
import type { Failed, Future, Futures } from './futures.ts';
import type { SampleResult } from './sample.ts';
import type { SampleRequests } from './sample-requests.ts';
import type { Sessions } from './sessions.ts';

export type Env = { Bindings: { exchange: Exchange } };

export interface TinkerContext {
  readonly sessions: Sessions;
  readonly futures: Futures;
  readonly samples: SampleRequests;
  /** Models that engines serve, without adapters. */
  readonly models: () => { readonly model_name: string; readonly max_context_length?: number }[];
  /** Answers what is not sampling; null: no one does. */
  readonly orElse: ((x: Exchange) => Promise<Response>) | null;
  /** Resolves when sessions are where a restart finds them. */
  readonly flush: () => Promise<void>;
  /** How long a poll waits for its result. The SDK's transports end a request after 45 s. */
  readonly pollMs: () => number;
}

export const session = z.object({ session_id: z.string() });
export const samplingSession = z.object({ sampling_session_id: z.string() });
export const request = z.object({ request_id: z.string() });
const sampling = z.object({
  session_id: z.string(),
  base_model: z.string().nullish(),
  model_path: z.string().nullish(),
});
const several = z.object({
  target: samplingSession.extend({ cloned_sampler_id: z.int().nullish() }),
  prev_cursor: z.int().nullish(),
  timeout: z.number().nullish(),
});

/** Adds the sampling half of the Tinker API. An error is `{"detail"}`, as FastAPI's servers write it. */
export function addTinkerRoutes(routes: Hono, context: TinkerContext): void {
  const { sessions, futures, samples, pollMs } = context;
  const app = routes.basePath('/api/v1') as unknown as Hono<Env>;

  app.get('/healthz', (c) => c.json({ status: 'ok' }));
  app.post('/client/config', (c) => c.json({}));
  app.post('/client/dynamic_config', (c) =>
    c.json({ refresh_interval_sec: 300, sample_cancel_enabled: true, sample_cancel_max_batch_size: 64 }),
  );
  app.get('/get_server_capabilities', (c) => c.json({ supported_models: context.models() }));
  app.post('/telemetry', (c) => c.json({ status: 'accepted' }));

  app.post('/create_session', async (c) => {
    const id = sessions.open(tenantOf(c));
    await context.flush();
    return c.json({ type: 'create_session', session_id: id });
  });
  app.post('/session_heartbeat', (c) => {
    const given = read(c, session);
    if (given instanceof Response) return given;
    if (sessions.touch(given.session_id, tenantOf(c))) return c.json({ type: 'session_heartbeat' });
    return refuse(c, 404, `There is no session ${given.session_id}: it has expired, or was never created.`);
  });
  // A session that has expired is finished: 404 would be raised to the user at the end of the program.
  app.post('/sessions/:id/finish', (c) => {
    if (sessions.touch(c.req.param('id'), tenantOf(c))) sessions.close(c.req.param('id'));
    return c.json({ status: 'ok' });
  });

  app.post('/create_sampling_session', async (c) => {
    const given = read(c, sampling);
    if (given instanceof Response) return given;
    const tenant = tenantOf(c);
    if (!sessions.touch(given.session_id, tenant)) return refuse(c, 404, `There is no session ${given.session_id}.`);
    const source = await samples.sourceOf(given.base_model ?? '', given.model_path ?? '');
    if ('status' in source) return refuse(c, source.status, source.detail);
    const { id } = sessions.openSampling(given.session_id, tenant, source);
    await context.flush();
    return c.json({ type: 'create_sampling_session', sampling_session_id: id });
  });
  app.get('/samplers/:id', (c) => {
    const found = sessions.sampling(c.req.param('id'), tenantOf(c));
    if (found === null) return refuse(c, 404, `There is no sampling session ${c.req.param('id')}.`);
    const { id, baseModel, modelPath } = found;
    return c.json({ sampler_id: id, base_model: baseModel, ...(modelPath === '' ? {} : { model_path: modelPath }) });
  });

  app.post('/asample', async (c) => {
    const { body } = c.env.exchange;
    // A prompt may have megabytes.
    const whole = (await copiedTogether(body.pieces, body.bytes, () => true))!;
    const promised = await samples.take(whole, c.env.exchange);
    if ('status' in promised) return refuse(c, promised.status, promised.detail);
    const { future, count, model } = promised;
    const ids = Array.from({ length: count }, (_, i) => `${future.id}:${i}`);
    return c.json({ request_id: future.id, model_id: model, sample_sequence_ids: ids });
  });
  app.post('/retrieve_future', async (c) => {
    const given = read(c, request);
    if (given instanceof Response) return given;
    const future = find(c, futures, given.request_id);
    if (future instanceof Response) return future;
    if (future.result === null) await futures.wait(future.id, pollMs(), (stop) => whenGone(c, stop));
    const { result } = future;
    if (result === null) return c.json({ type: 'try_again', request_id: future.id, queue_state: 'active' }, 408);
    futures.fetched(future);
    return answer(c, result);
  });
  app.post('/retrieve_futures', async (c) => {
    const given = read(c, several);
    if (given instanceof Response) return given;
    const { target, timeout } = given;
    const cursor = futures.placeOf(given.prev_cursor ?? 0);
    const clone = target.cloned_sampler_id ?? 0;
    const wanted = `${tenantOf(c)} ${target.sampling_session_id} ${clone}`;
    const news = (): Future[] => futures.finishedAfter(wanted, cursor);
    const ms = Math.min(pollMs(), (timeout ?? Infinity) * 1000);
    if (news().length === 0 && ms > 0) await futures.wait(wanted, ms, (stop) => whenGone(c, stop));
    const finished = news();
    const completions = finished.map(({ id, result }) => ({
      state: result !== null && 'error' in result ? 'failed' : 'finished',
      request_id: id,
    }));
    return c.json({ completions, cursor: Math.max(cursor, ...finished.map(({ order }) => order)) });
  });
  app.post('/cancel_future', (c) => {
    const given = read(c, request);
    if (given instanceof Response) return given;
    const future = find(c, futures, given.request_id);
    if (future instanceof Response) return future;
    samples.cancel(future);
    return c.body(null, 204);
  });

  app.all('/:rest{.+}', (c) => {
    if (context.orElse !== null) return context.orElse(c.env.exchange);
    const allow = methodsFor(routes, c.req.path);
    if (allow !== '') return c.json({ detail: `This path takes ${allow}.` }, 405, { allow });
    return refuse(c, 404, `${c.req.method} ${c.req.path}: this server samples only. Training needs --tinker-trainer.`);
  });
}

/** Identifies the client by its key; '' without keys. */
export const tenantOf = (c: Context<Env>): string => c.env.exchange.tenant;

export const refuse = (c: Context<Env>, status: ContentfulStatusCode, detail: string): Response =>
  c.json({ detail }, status);

/** Of every request but a sample. */
const MAX_SMALL_BYTES = 262_144;

/** Reads a small body; fields that are not known are ignored. */
export function read<T>(c: Context<Env>, schema: z.ZodType<T>): T | Response {
  const { pieces, bytes } = c.env.exchange.body;
  if (bytes > MAX_SMALL_BYTES)
    return refuse(c, 413, `The body has ${bytes} bytes: ${c.req.path} takes at most ${MAX_SMALL_BYTES}.`);
  const { data, problem } = checkJson(schema, Buffer.concat(pieces).toString());
  return problem === null ? data : refuse(c, 422, problem);
}

const NOT_KEPT =
  'The result is not kept any more. Results are dropped 30 s after they were fetched, or an hour after they came; the oldest ones earlier, ' +
  'when those that were not fetched exceed 256 MB; and all of them when the router restarts without --data-dir.';

function find(c: Context<Env>, futures: Futures, id: string): Future | Response {
  const future = futures.find(id, tenantOf(c), c.env.exchange.seesAllTenants);
  if (future === 410) return refuse(c, 410, `${NOT_KEPT} Sample again. (${id})`);
  return future === 404 ? refuse(c, 404, `There is no request ${id}.`) : future;
}

function whenGone(c: Context<Env>, stop: () => void): void {
  c.env.exchange.activity = { abort: stop };
}

function answer(c: Context<Env>, result: SampleResult | Failed): Response {
  if ('error' in result) return c.json(result);
  if (c.req.header('accept')?.includes('application/x-protobuf') !== true) return c.json(jsonOf(result));
  return c.body(new Uint8Array(protobufOf(result)), 200, { 'content-type': 'application/x-protobuf' });
}
