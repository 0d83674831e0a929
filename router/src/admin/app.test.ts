import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { Hono } from 'hono';
import type { Exchange } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import { addWaitIdle } from './app.ts';

test('a client that has left is not waited for', async () => {
  const app = new Hono();
  addWaitIdle(app, { workers: [{ url: 'http://a' }], leaving: [], load: () => 1 } as unknown as Fleet);
  const exchange = { outcome: null } as Exchange;
  const body = '{"timeout_secs":86400}';
  const answer = app.request('/fleet/wait_idle', { method: 'POST', body }, { exchange });
  exchange.outcome = 'client_left';
  equal((await answer).status, 504);
});
