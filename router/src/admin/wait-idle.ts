import { setTimeout as delay } from 'node:timers/promises';
import type { Hono } from 'hono';
import * as z from 'zod';
import type { Exchange } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import { checkJson } from '../config/check-input.ts';

const LOOK_EVERY_MS = 20;

const question = z.strictObject({ timeout_secs: z.number().min(0).max(86_400).default(60) });

/** `POST /fleet/wait_idle`: responds when no worker has requests of this router in flight, or at the timeout with those that have. */
export function addWaitIdle(app: Hono, fleet: Fleet): void {
  const inFlight = () =>
    fleet.workers.filter((worker) => fleet.load(worker) > 0).map((worker) => [worker.url, fleet.load(worker)] as const);
  app.post('/fleet/wait_idle', async (c) => {
    const asked = checkJson(question, await c.req.text());
    if (asked.problem !== null) return c.json({ error: asked.problem, code: 'BAD_REQUEST' }, 400);
    const { exchange } = c.env as { exchange?: Exchange };
    const endMs = performance.now() + asked.data.timeout_secs * 1000;
    for (;;) {
      const busy = inFlight();
      if (busy.length === 0) return c.json({ idle: true });
      const hasLeft = (exchange?.outcome ?? null) !== null;
      if (hasLeft || performance.now() >= endMs)
        return c.json({ idle: false, in_flight: Object.fromEntries(busy) }, 504);
      // A waiting client does not keep the process alive.
      await delay(LOOK_EVERY_MS, undefined, { ref: false });
    }
  });
}
