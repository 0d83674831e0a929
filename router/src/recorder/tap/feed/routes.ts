import type { Context, Hono } from 'hono';
import * as z from 'zod';
import { boundedKey } from '../../../classify/routing-keys.ts';
import { checkInput, checkJson } from '../../../config/check-input.ts';
import { type ErrorCode, RouterError } from '../../../kit/errors.ts';
import { MAX_GROUP_SIZE } from '../../shared/feed.ts';
import type { FeedTake } from '../../thread/feed/feed-calls.ts';
import { type RecorderThread, storeFailed } from '../recorder-thread.ts';
import { whileHeld } from './moved.ts';
import { type Env, tenantFor } from '../routes.ts';

const MAX_LEASE_SECS = 604_800;
const tenant = z.string().optional();
const leaseSecs = z.coerce.number().min(1).max(MAX_LEASE_SECS).optional();

const types = { ndjson: 'application/x-ndjson', arrow: 'application/vnd.apache.arrow.stream' } as const;

const taking = z.strictObject({
  max_groups: z.coerce.number().int().min(1).max(1_000).default(8),
  wait_secs: z.coerce.number().min(0).max(600).default(30),
  lease_secs: leaseSecs,
  cursor: z.coerce.number().int().min(0).default(0),
  consumer: z.string().max(256).default(''),
  format: z.enum(['ndjson', 'arrow']).default('ndjson'),
  tenant,
});
const claims = z.strictObject({
  leases: z.array(z.string().max(64)).min(1).max(10_000),
  lease_secs: z.number().min(1).max(MAX_LEASE_SECS).optional(),
});
const listing = z.strictObject({
  limit: z.coerce.number().int().min(1).max(10_000).default(100),
  after: z.coerce.number().int().min(0).default(0),
  tenant,
});
const justTenant = z.strictObject({ tenant });
const declared = z.strictObject({
  group: z.string().min(1).transform(boundedKey),
  size: z.number().int().min(1).max(MAX_GROUP_SIZE),
  sessions: z
    .array(z.string().min(1).transform(boundedKey))
    .max(MAX_GROUP_SIZE)
    .refine((names) => new Set(names).size === names.length, 'has a session more than once')
    .default([]),
});

/**
 * `/feed` and `/groups`, and rewards of sessions. Where clients have keys each gets its own groups; an admin key is for all of them, and
 * `?tenant=` for those of one.
 */
export function addFeedRoutes(app: Hono, thread: RecorderThread): void {
  const routes = app as unknown as Hono<Env>;
  /** A client's own; of a client that sees all: the one that it names, or that of requests without a key. */
  const ownTenant = (c: Context<Env>, asked: string | undefined): string => tenantFor(c, asked) ?? '';

  const ask: RecorderThread['ask'] = (...call) => whileHeld(thread, thread.ask(...call));

  routes.get('/feed', async (c) => {
    const asked = checkInput(taking, c.req.query());
    if (asked.problem !== null) return refuse(c, 'bad_request', asked.problem);
    const { max_groups: max, wait_secs: waitSecs, lease_secs: secs = null, cursor, consumer, format } = asked.data;
    const who = { tenant: tenantFor(c, asked.data.tenant), consumer };
    const take = { ...who, id: thread.newId(), max, cursor, leaseSecs: secs, waitMs: 1_000 * waitSecs, format };
    // Errors have a status as long as nothing is waited for.
    const isFound = await ask('feedTake', { ...take, waitMs: 0 }).catch(notKept);
    return c.body(groupStream(thread, take, isFound), 200, {
      'content-type': types[format],
      'transfer-encoding': 'chunked',
    });
  });

  for (const act of ['ack', 'nack', 'renew'] as const) {
    routes.post(`/feed/${act}`, async (c) => {
      const asked = checkJson(claims, await c.req.text());
      if (asked.problem !== null) return refuse(c, 'bad_request', asked.problem);
      const { leases, lease_secs: secs = null } = asked.data;
      const tenants = tenantFor(c, c.req.query('tenant'));
      const asking = ask('feedClaims', { leases, tenant: tenants, act, leaseSecs: secs });
      const results = await asking.catch(notKept);
      const lost = leases.filter((_, i) => results[i] !== 'acked');
      const status = lost.length === 0 ? 200 : 409;
      const said = { [`${act}ed`]: leases.length - lost.length, lost };
      if (status === 200) return c.json(said);
      const error = `${lost.length} leases have expired, or are not known: another consumer may have their groups.`;
      return c.json({ ...said, error, code: 'lease_lost' }, status, { 'x-turnout-error': 'lease_lost' });
    });
  }

  routes.get('/feed/stats', async (c) => c.json(await ask('feedStats', null)));

  routes.get('/groups', async (c) => {
    const asked = checkInput(listing, c.req.query());
    if (asked.problem !== null) return refuse(c, 'bad_request', asked.problem);
    const { limit, after, tenant: whose } = asked.data;
    const question = { tenant: tenantFor(c, whose), name: null, limit, after };
    return sendJson(c, await ask('feedGroups', question));
  });

  routes.post('/groups', async (c) => {
    const asked = checkJson(declared, await c.req.text());
    if (asked.problem !== null) return refuse(c, 'bad_request', asked.problem);
    const { group: name, size, sessions } = asked.data;
    const verdict = await ask('feedDeclare', {
      name,
      size,
      sessions,
      tenant: ownTenant(c, c.req.query('tenant')),
    });
    if (verdict.kind === 'admitted') return c.json({ group: name, size, sessions });
    return refuse(c, verdict.kind === 'full' ? 'feed_full' : 'bad_request', verdict.message);
  });

  routes.get('/groups/:name{.+}', async (c) => {
    const asked = checkInput(justTenant, c.req.query());
    if (asked.problem !== null) return refuse(c, 'bad_request', asked.problem);
    const name = boundedKey(c.req.param('name'));
    const question = { tenant: tenantFor(c, asked.data.tenant), name, limit: 0, after: 0 };
    const bytes = await ask('feedGroups', question);
    return sendJson(c, bytes);
  });

  routes.post('/groups/:name{.+}/close', async (c) => {
    const name = boundedKey(c.req.param('name'));
    const isThere = await ask('feedClose', { name, tenant: tenantFor(c, c.req.query('tenant')) });
    return isThere ? c.json({ group: name }) : refuse(c, 'bad_request', `No open group has the name '${name}'.`);
  });

  routes.post('/trajectories/:session{.+}/reward', async (c) => {
    const session = boundedKey(c.req.param('session'));
    const body = new Uint8Array(await c.req.arrayBuffer());
    const asking = ask('feedReward', { session, tenant: tenantFor(c, c.req.query('tenant')), body });
    const { code, message } = await asking.catch(notKept);
    return code === null ? c.json({ session }) : refuse(c, code, message);
  });
}

const sendJson = (c: Context, bytes: Uint8Array): Response =>
  c.body(Buffer.from(bytes), 200, { 'content-type': 'application/json' });

function refuse(c: Context, code: ErrorCode, message: string): Response {
  const { status, retryAfterSecs } = new RouterError(code, message);
  const after = retryAfterSecs > 0 ? { 'retry-after': String(retryAfterSecs) } : {};
  return c.json({ error: message, code }, status as 400, { 'x-turnout-error': code, ...after });
}

const notKept = (error: unknown): never => storeFailed(error, "The feed can't store this now");

/**
 * Groups as soon as there are some. A consumer that disconnects gives those back that were not sent.
 * @param isFound the take has groups already
 */
function groupStream(thread: RecorderThread, take: FeedTake, isFound: boolean): ReadableStream<Uint8Array> {
  let isBegun = isFound;
  let isOver = false;
  const leave = (): void => {
    isOver = true;
    thread.tell('feedLeave', take.id);
  };
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        if (!isBegun) {
          isBegun = true;
          const hasCome = take.waitMs > 0 && (await thread.ask('feedTake', take));
          // The consumer left while its groups were leased.
          if (isOver) return leave();
          if (!hasCome) return controller.close();
        }
        const bytes = await thread.ask('feedNext', take.id);
        if (bytes === null) controller.close();
        else controller.enqueue(bytes);
      },
      cancel: leave,
    },
    { highWaterMark: 0 },
  );
}
