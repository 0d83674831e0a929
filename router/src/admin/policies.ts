import type { Hono } from 'hono';
import * as z from 'zod';
import { checkJson } from '../config/check-input.ts';

export interface PolicyControl {
  /** '' is the policy of all other models. */
  readonly list: () => { model: string; policy: string; state: Readonly<Record<string, unknown>> }[];
  /** Rejects if there is no such policy. */
  readonly set: (model: string, policy: string) => Promise<void>;
  /** @returns false: the model has no policy of its own */
  readonly unset: (model: string) => boolean;
  /** @returns whether a policy knows the session */
  readonly endSession: (session: string) => boolean;
}

const newPolicy = z.strictObject({ policy: z.string().min(1), model: z.string().default('') });

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
