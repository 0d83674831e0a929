import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Hono } from 'hono';
import type { Exchange } from '../../../exchange.ts';
import type { RecorderThread } from '../recorder-thread.ts';
import type { RadixTree } from './radix-tree.ts';
import { addRoutes } from './routes.ts';

test('what was wrong with an answer is told to who sees those of all: its words may be of it', async () => {
  const app = new Hono();
  const stats = { prompts: 1, uncaptured: 1, lastProblem: 'Unexpected token, "{"text":"se"... is not valid JSON' };
  const thread = { ask: () => Promise.resolve(stats) } as unknown as RecorderThread;
  addRoutes(app, thread, { tooLarge: 0, failures: 0 } as unknown as RadixTree, ['x-session-id']);
  const asked = async (exchange: Pick<Exchange, 'tenant' | 'seesAllTenants'>) => {
    const response = await app.request('/radix_tree/stats', {}, { exchange });
    const { uncaptured_answers: count, last_problem: problem } = (await response.json()) as Record<string, unknown>;
    return [count, problem];
  };
  assert.deepEqual(await asked({ tenant: '', seesAllTenants: true }), [1, stats.lastProblem]);
  assert.deepEqual(await asked({ tenant: 'a', seesAllTenants: false }), [1, '']);
});
