import type { Context, Hono } from 'hono';
import * as z from 'zod';
import { boundedKey } from '../../classify/routing-keys.ts';
import { checkInput } from '../../config/check-input.ts';
import type { Exchange } from '../../exchange.ts';
import { RouterError } from '../../kit/errors.ts';
import { Refused } from '../../plugin.ts';
import { formatNames, formats } from '../shared/export-formats.ts';
import type { ExportOrder } from '../thread/export/export-calls.ts';
import { type RecorderThread, storeFailed } from './recorder-thread.ts';
import { readSince } from './since.ts';

const page = {
  limit: z.coerce.number().int().min(1).max(1_000).default(100),
  after: z.string().optional(),
};
const flag = z.enum(['true', 'false']).transform((text) => text === 'true');
const number = z.string().trim().min(1).pipe(z.coerce.number());
/** The tenant: only for callers that may see all tenants. */
const tenant = z.string().optional();

const listing = z.strictObject({
  ...page,
  tenant,
  session: z.string().transform(boundedKey).optional(),
  group: z.string().transform(boundedKey).optional(),
  version: z.string().optional(),
  finished: flag.optional(),
  min_reward: number.optional(),
  max_reward: number.optional(),
  label: z.string().optional(),
  order: z.enum(['oldest', 'newest']).optional(),
  since: z
    .string()
    .transform((text) => readSince(text, Date.now()))
    .refine((ms) => !Number.isNaN(ms), 'is a time (2026-11-21T10:00:00Z, Unix seconds) or how long ago (90m)')
    .optional(),
  format: z.enum(formatNames).optional(),
});
const turnsPage = z.strictObject({ ...page, tenant, texts: flag.optional() });
const justTenant = z.strictObject({ tenant });

export type Env = { Bindings: { exchange: Exchange } };

/** @returns the tenant whose trajectories are meant; undefined: those of all tenants */
export function tenantFor(c: Context<Env>, asked: string | undefined): string | undefined {
  const { exchange } = c.env;
  return exchange.seesAllTenants ? asked : exchange.tenant;
}

/**
 * `/trajectories`: what was captured. Where clients have keys each sees, and removes, its own; an admin key is for all of
 * them, and `?tenant=` for those of one.
 */
export function addTrajectoryRoutes(app: Hono, thread: RecorderThread): void {
  const routes = app as unknown as Hono<Env>;

  const wrong = (c: Context, problem: string): Response => c.json({ error: problem, code: 'bad_request' }, 400);
  const unknown = (c: Context, session: string): Response =>
    c.json({ error: `No trajectory of session '${session}'`, code: 'session_not_found' }, 404);
  const sendJson = (c: Context, bytes: Uint8Array): Response =>
    c.body(Buffer.from(bytes), 200, { 'content-type': 'application/json' });

  const list = async (c: Context<Env>): Promise<Response> => {
    const asked = checkInput(listing, c.req.query());
    if (asked.problem !== null) return wrong(c, asked.problem);
    const { limit, after, since: sinceMs, format, tenant: whose, ...rest } = asked.data;
    const { min_reward: minReward, max_reward: maxReward, ...marks } = rest;
    const query = { ...marks, minReward, maxReward, sinceMs, tenant: tenantFor(c, whose) };
    await thread.requireStored({ session: query.session, group: query.group, tenant: query.tenant });
    if (format === undefined) return sendJson(c, await thread.ask('sessionsJson', { ...query, after, limit }));
    if (c.req.query('limit') !== undefined || after !== undefined) {
      const error = 'An export is whole: "limit" and "after" are for lists, without "format".';
      return c.json({ error, code: 'bad_request' }, 400);
    }
    const fields = {
      'content-type': formats[format],
      'content-disposition': `attachment; filename="trajectories.${format}"`,
      'transfer-encoding': 'chunked',
    };
    return c.body(await exportStream(thread, { id: thread.newId(), format, query }), 200, fields);
  };
  routes.get('/trajectories', orUnavailable(list));

  const metrics = async (c: Context<Env>, session: string): Promise<Response> => {
    const asked = checkInput(justTenant, c.req.query());
    if (asked.problem !== null) return wrong(c, asked.problem);
    const question = { session: boundedKey(session), tenant: tenantFor(c, asked.data.tenant) };
    await thread.requireStored(question);
    const bytes = await thread.ask('metricsJson', question);
    return bytes === null ? unknown(c, session) : sendJson(c, bytes);
  };

  const turns = async (c: Context<Env>, session: string, query: object): Promise<Response> => {
    const asked = checkInput(turnsPage, query);
    if (asked.problem !== null) return wrong(c, asked.problem);
    const { limit, after, texts, tenant: whose } = asked.data;
    const name = { session: boundedKey(session), tenant: tenantFor(c, whose) };
    await thread.requireStored(name);
    const bytes = await thread.ask('turnsJson', { ...name, limit, after, texts });
    return bytes === null ? unknown(c, session) : sendJson(c, bytes);
  };
  const read = (c: Context<Env>): Promise<Response> => {
    const session = c.req.param('session') ?? '';
    // The name of a session may hold slashes, which need not be escaped, so its end can't be a route of its own.
    return session.endsWith('/metrics') && c.req.path.endsWith('/metrics')
      ? metrics(c, session.slice(0, -'/metrics'.length))
      : turns(c, session, c.req.query());
  };
  routes.get('/trajectories/:session{.+}', orUnavailable(read));

  const remove = async (c: Context<Env>, session: string, query: object): Promise<Response> => {
    const asked = checkInput(justTenant, query);
    if (asked.problem !== null) return wrong(c, asked.problem);
    const question = { session: boundedKey(session), tenant: tenantFor(c, asked.data.tenant) };
    const removed = await thread.ask('removeSession', question);
    return removed === 0 ? unknown(c, session) : c.json({ session, removed });
  };
  const removeNamed = (c: Context<Env>): Promise<Response> => remove(c, c.req.param('session') ?? '', c.req.query());
  routes.delete('/trajectories/:session{.+}', orUnavailable(removeNamed));

  // Names that lead out of the path (dot segments at their beginning) are found by the query only.
  const named = (answer: typeof turns) => async (c: Context<Env>) => {
    const { session = '', ...query } = c.req.query();
    if (session !== '') return answer(c, session, query);
    return wrong(c, `The query names no session: ${c.req.method} /trajectory?session=NAME`);
  };
  routes.get('/trajectory', orUnavailable(named(turns)));
  routes.delete('/trajectory', orUnavailable(named(remove)));
}

const orUnavailable =
  (answer: (c: Context<Env>) => Promise<Response>) =>
  (c: Context<Env>): Promise<Response> =>
    answer(c).catch((error: unknown) => storeFailed(error, "Trajectories can't be read or removed now"));

/** The next piece is made when the last one is on its way. */
async function exportStream(thread: RecorderThread, order: ExportOrder): Promise<ReadableStream<Uint8Array>> {
  const { id } = order;
  const isBegun = await thread.ask('exportBegin', order);
  if (!isBegun) throw new Refused(new RouterError('overloaded', 'Too many exports at once. Retry later.'));
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const bytes = await thread.ask('exportNext', id);
        if (bytes === null) controller.close();
        else controller.enqueue(bytes);
      },
      cancel: () => thread.tell('exportEnd', id),
    },
    { highWaterMark: 0 },
  );
}
