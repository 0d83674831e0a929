import type { Context, Hono } from 'hono';
import * as z from 'zod';
import { boundedKey } from '../classify/routing-keys.ts';
import { checkJson, namedValues } from '../config/check-input.ts';
import type { Exchange } from '../exchange.ts';
import { errorTable } from '../kit/errors.ts';

const MAX_LABELS = 64;
const label = z.string().min(1).max(256);
const value = z.union([z.string(), z.number(), z.boolean()]);

const ofTrajectory = z
  .undefined({ error: 'is a field of POST /trajectories/{session}/reward, which --plugin feed serves' })
  .optional();

/** The end of a session. `{"split": "train"}` is the label `split=train`. */
const ending = z.strictObject({
  session_id: z.string().optional(),
  reward: z.number().nullable().optional(),
  rewards: namedValues(z.string().min(1).max(256), z.number()).optional(),
  labels: z
    .union([
      z.array(label),
      namedValues(z.string(), value).transform((named) => Object.entries(named).map(([key, each]) => `${key}=${each}`)),
    ])
    .pipe(z.array(label).max(MAX_LABELS))
    .transform((labels) => [...new Set(labels)])
    .optional(),
  turn_rewards: ofTrajectory,
  token_rewards: ofTrajectory,
});
/** Clients of another router may send what only that router reads. */
const endingAsThere = ending.loose();

type Ending = z.infer<typeof ending>;

interface SessionName {
  readonly session: string;
  readonly tenant?: string;
}

export interface SessionRecord {
  /** Rewards by name are kept too: by the plugin `feed`. */
  readonly keepsRewards: boolean;
  /**
   * Rejects if the end can't be stored now.
   * @returns the number of recorded sessions with that name, whether the reward came too late for the feed, and the router that has taken
   * over the feed with the group of the session
   */
  end(
    end: SessionName & {
      readonly reward?: number | null;
      readonly rewards?: Readonly<Record<string, number>>;
      readonly labels?: readonly string[];
    },
  ): Promise<{ readonly known: number; readonly isTaken: boolean; readonly movedTo: string | null }>;
  /** Stores the end now, or as soon as that is possible. */
  keepEnd(end: SessionName): void;
  /** @returns whether there was such a chat session */
  remove(session: string, tenant: string): Promise<boolean>;
}

/** @param record null: nothing is captured */
export function addSessionRoutes(
  app: Hono,
  /** Gets the stored form of the name. @returns whether a policy knew the session */
  endForPolicies: (session: string, tenant: string | undefined) => boolean,
  record: SessionRecord | null,
): void {
  const exchangeOf = (c: Context): Exchange | undefined => (c.env as { exchange?: Exchange } | undefined)?.exchange;

  /** undefined: the sessions with this name of all tenants. */
  const tenantOf = (c: Context): string | undefined => {
    const exchange = exchangeOf(c);
    return exchange === undefined || exchange.seesAllTenants ? c.req.query('tenant') : exchange.tenant;
  };

  /** An unknown session is no error, unless a reward or labels would be lost. */
  const finish = async (c: Context, session: string, { reward, rewards, labels }: Ending): Promise<Response> => {
    if (rewards !== undefined && record?.keepsRewards !== true) {
      return c.json({ error: '"rewards" needs --plugin feed; "reward" is kept without it.', code: 'bad_request' }, 400);
    }
    const key = boundedKey(session);
    const tenant = tenantOf(c);
    const isKnown = endForPolicies(key, tenant);
    const hasOutcome = reward !== undefined || rewards !== undefined || labels !== undefined;
    const end = { session: key, ...(tenant === undefined ? {} : { tenant }) };
    let kept = 0;
    try {
      const said = {
        ...(reward === undefined ? {} : { reward }),
        ...(rewards === undefined ? {} : { rewards }),
        ...(labels === undefined ? {} : { labels }),
      };
      const ended = await record?.end({ ...end, ...said });
      if (ended?.isTaken === true) {
        const message = `A consumer of the feed has the group of session '${session}': its rewards can't change any more.`;
        return failure(c, 'group_taken', message);
      }
      const owner = ended?.movedTo ?? null;
      if (owner !== null) {
        const message = `The router ${owner} has taken over the feed with the group of session '${session}': end the session there too.`;
        return failure(c, 'feed_moved', message);
      }
      kept = ended?.known ?? 0;
    } catch (error) {
      // Without an outcome it may be stored later.
      if (!hasOutcome) {
        record?.keepEnd(end);
        return c.json({ status: 'ok', session_id: session, known: isKnown });
      }
      const message = `The end of session '${session}' can't be kept now: ${(error as Error).message}`;
      return failure(c, 'capture_failed', message);
    }
    if (hasOutcome && kept === 0) {
      const message = `No turn of session '${session}' is on record, so its reward and labels can't be kept.`;
      return failure(c, 'session_not_found', message);
    }
    return c.json({ status: 'ok', session_id: session, known: isKnown || kept > 0 });
  };

  /** @returns an error response for an invalid body */
  const read = async (c: Context, schema: z.ZodType<Ending>): Promise<Ending | Response> => {
    const { data, problem } = checkJson(schema, await c.req.text());
    return problem === null ? data : c.json({ error: problem, code: 'bad_request' }, 400);
  };

  // As in vllm-router.
  app.post('/finish_session', async (c) => {
    const body = await read(c, endingAsThere);
    if (body instanceof Response) return body;
    const session = c.req.query('session_id') ?? body.session_id ?? '';
    if (session !== '') return finish(c, session, body);
    return c.json({ error: 'session_id is required (use query ?session_id=... or JSON body)' }, 400);
  });
  app.post('/sessions/:id{.+}/finish', async (c) => {
    const body = await read(c, ending);
    return body instanceof Response ? body : finish(c, c.req.param('id'), body);
  });
  app.delete('/sessions/:id{.+}', async (c) => {
    const session = c.req.param('id');
    const ended = await finish(c, session, {});
    const tenant = tenantOf(c) ?? exchangeOf(c)?.tenant ?? '';
    try {
      const isRemoved = await record?.remove(boundedKey(session), tenant);
      return isRemoved === true ? c.body(null, 204) : ended;
    } catch (error) {
      return failure(c, 'capture_failed', `Session '${session}' can't be removed now: ${(error as Error).message}`);
    }
  });
}

function failure(
  c: Context,
  code: 'capture_failed' | 'feed_moved' | 'group_taken' | 'session_not_found',
  message: string,
): Response {
  return c.json({ error: message, code }, errorTable[code].status, { 'x-turnout-error': code });
}
