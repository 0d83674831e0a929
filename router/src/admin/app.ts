import { Hono } from 'hono';
import { checkInput, checkJson } from '../config/check-input.ts';
import { methodsFor } from '../plugins/endpoints.ts';
import type { MetricsText } from '../observe/metrics-server.ts';
import type { ExchangeRows } from '../observe/exchange-rows.ts';
import { addDashboardRoutes } from './dashboard/routes.ts';
import type { FeedSources } from './dashboard/feed-tables.ts';
import { neededFor, openApi } from './endpoints.ts';
import { addEngineMetrics } from './engine-metrics.ts';
import { type ExplainContext, addExplain } from './explain.ts';
import { addOverviewRoutes } from './overview.ts';
import { EVENT_STREAM_HEADERS } from './own-endpoints.ts';
import { type PolicyControl, addPolicyRoutes } from './policy-control.ts';
import { type SessionRecord, addSessionRoutes } from './sessions.ts';
import { addUrlRoutes } from './workers/by-url.ts';
import type { WorkersContext } from './workers/context.ts';
import { addProbes } from './workers/probes.ts';
import { addRestRoutes } from './workers/rest.ts';
import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import * as z from 'zod';
import type { Exchange } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';

export interface AdminContext extends WorkersContext, ExplainContext {
  readonly metricsText: MetricsText;
  readonly policies: PolicyControl;
  readonly rows: ExchangeRows;
  /** null: nothing is captured. */
  readonly record: SessionRecord | null;
  readonly dashboard: FeedSources | null;
}

/** The router's own endpoints: probes, metrics, fleet, policies. Everything else goes to the engines. */
export function createAdminApp(context: AdminContext): Hono {
  // Escapes stay until a handler reads a name: `.+` of a route takes no line break.
  const app = new Hono({ getPath: ({ url }) => new URL(url).pathname });
  addProbes(app, context);
  app.get('/metrics', async (c) => {
    const { contentType, text } = await context.metricsText();
    return c.body(text, 200, { 'content-type': contentType });
  });
  addEngineMetrics(app, context);
  app.get('/openapi.json', (c) => c.json(openApi()));
  addUrlRoutes(app, context);
  addRestRoutes(app, context);
  addPolicyRoutes(app, context.policies);
  addSessionRoutes(app, (...session) => context.policies.endSession(...session), context.record);
  addOverviewRoutes(app, context);
  addExplain(app, context);
  addTap(app, context.rows);
  addWaitIdle(app, context.fleet);
  if (context.dashboard !== null) addDashboardRoutes(app, context.dashboard);

  app.notFound((c) => {
    const { method, path } = c.req;
    const allow = methodsFor(app, path);
    // It only begins as an endpoint of a plugin does.
    if (allow === '') return c.json({ error: `There is no endpoint ${path}.` }, 404);
    const needs = neededFor(method, path);
    const hint = needs === null ? '' : `; ${method} needs ${needs}`;
    return c.json({ error: `This path takes ${allow}${hint}.` }, 405, { allow });
  });
  app.onError((error, c) => c.json({ error: error.message, code: 'internal_error' }, 500));
  return app;
}

/** `GET /tap`: exchanges as they end. */
function addTap(app: Hono, rows: ExchangeRows): void {
  app.get('/tap', async (c) => {
    const { rowFilter, rowQuery } = await import('../observe/row-filter.ts');
    const { Tap } = await import('../observe/tap.ts');
    const { data, problem } = checkInput(rowQuery, c.req.query());
    if (problem !== null) return c.json({ error: `In the query: ${problem}`, code: 'bad_request' }, 400);
    return new Response(new ReadableStream(new Tap(rows, rowFilter(data)), { highWaterMark: 0 }), {
      headers: EVENT_STREAM_HEADERS,
    });
  });
}

const LOOK_EVERY_MS = 20;

const question = z.strictObject({ timeout_secs: z.number().min(0).max(86_400).default(60) });

/** `POST /fleet/wait_idle`: responds when no worker, removed ones included, has requests of this router in flight, or at the timeout with those that have. */
export function addWaitIdle(app: Hono, fleet: Fleet): void {
  const inFlight = () => {
    const counts: Record<string, number> = {};
    // A worker that was removed and added again is there twice.
    for (const worker of [...fleet.workers, ...fleet.leaving]) {
      if (fleet.load(worker) > 0) counts[worker.url] = (counts[worker.url] ?? 0) + fleet.load(worker);
    }
    return counts;
  };
  app.post('/fleet/wait_idle', async (c) => {
    const asked = checkJson(question, await c.req.text());
    if (asked.problem !== null) return c.json({ error: asked.problem, code: 'bad_request' }, 400);
    const { exchange } = c.env as { exchange?: Exchange };
    const endMs = performance.now() + asked.data.timeout_secs * 1000;
    let isTimeUp = asked.data.timeout_secs === 0;
    for (;;) {
      const busy = inFlight();
      if (Object.keys(busy).length === 0) return c.json({ idle: true });
      const hasLeft = (exchange?.outcome ?? null) !== null;
      if (hasLeft || isTimeUp) return c.json({ idle: false, in_flight: busy }, 504);
      // A waiting client does not keep the process alive.
      await delay(LOOK_EVERY_MS, undefined, { ref: false });
      isTimeUp = performance.now() >= endMs;
      // Responses that came during a stop of the process, also one that begins now, are read first (see `TimeLimit`).
      await turn();
    }
  });
}
