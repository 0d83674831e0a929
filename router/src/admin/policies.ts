import type { Hono } from 'hono';
import * as z from 'zod';
import { checkJson } from '../config/check-input.ts';

/** What the control API does to policies and sessions. */
export interface PolicyControl {
  /** The policies by model, '' for all other models, each with its own account of its state. */
  readonly list: () => { model: string; policy: string; state: Readonly<Record<string, unknown>> }[];
  /** Rejects, in words for the user, when there is no such policy. */
  readonly set: (model: string, policy: string) => Promise<void>;
  /** @returns false: the model had no policy of its own. */
  readonly unset: (model: string) => boolean;
  /** @returns whether any policy knew the session. */
  readonly endSession: (session: string) => boolean;
}

const newPolicy = z.strictObject({ policy: z.string().min(1), model: z.string().default('') });

/** Which policy decides, changed while running. */
export function addPolicyRoutes(app: Hono, policies: PolicyControl): void {
  app.get('/policies', (c) => c.json({ policies: policies.list() }));
  app.put('/policies', async (c) => {
    const body = checkJson(newPolicy, await c.req.text());
    if (body.problem !== null) return c.json({ error: body.problem, code: 'BAD_REQUEST' }, 400);
    try {
      await policies.set(body.data.model, body.data.policy);
    } catch (error) {
      return c.json({ error: (error as Error).message, code: 'BAD_REQUEST' }, 400);
    }
    return c.json({ policies: policies.list() });
  });
  app.delete('/policies', (c) => {
    const model = c.req.query('model') ?? '';
    if (model === '') return c.json({ error: 'Say which: ?model=NAME', code: 'BAD_REQUEST' }, 400);
    if (policies.unset(model)) return c.json({ policies: policies.list() });
    return c.json({ error: `Model "${model}" has no policy of its own`, code: 'NOT_FOUND' }, 404);
  });
}
