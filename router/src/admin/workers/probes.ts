import type { Context, Hono } from 'hono';
import type { Exchange } from '../../exchange.ts';
import type { Fleet } from '../../fleet/fleet.ts';
import { shownLoads } from '../../fleet/load-watch.ts';
import type { Role } from '../../fleet/worker.ts';
import type { WorkersContext } from './context.ts';

export function addProbes(app: Hono, { fleet, workerApi, isDraining, problem, healthTimeoutMs }: WorkersContext): void {
  const isVllm = workerApi === 'vllm';
  app.get('/health', (c) => {
    // As SlimeRouter since it has kinds of workers; before that it forwarded the path.
    if (workerApi === 'slime') return c.json({ status: 'ok', ...countsOf(fleet) });
    if (!isVllm) return c.text('OK');
    const sick = fleet.workers.filter((worker) => !worker.isHealthy).map(({ url }) => url);
    if (sick.length === 0) return c.text('All servers healthy');
    return c.text(`Unhealthy servers: ${hasShownKey(c) ? JSON.stringify(sick) : sick.length}`, 503);
  });
  app.get('/liveness', (c) => c.text('OK'));
  app.get('/readiness', (c) => {
    const counts = countsOf(fleet);
    const failing = isDraining() ? 'shutting down' : problem();
    if (canServe(fleet) && failing === null)
      return c.json({ status: 'ready', ...counts, ...(isVllm && fleet.servesPairs ? halvesOf(fleet) : {}) });
    if (isVllm) {
      const reason = failing ?? 'no healthy workers available';
      return c.json({ status: 'not_ready', reason, total_workers: counts.total_workers }, 503);
    }
    const reason = failing ?? 'insufficient healthy workers';
    return c.json({ status: 'not ready', reason, ...counts }, 503);
  });
  app.get('/get_loads', async (c) => {
    const { workers } = fleet;
    const loads = await shownLoads(workers, healthTimeoutMs());
    return c.json({ workers: workers.map(({ url }, i) => ({ worker: url, load: loads[i]! })) });
  });
}

/** The client has a key, or the router has none. */
function hasShownKey({ env }: Context): boolean {
  const { exchange } = env as { exchange?: Exchange };
  return exchange !== undefined && (exchange.keyDigest !== null || exchange.seesAllTenants);
}

/** As in vllm-router. */
const halvesOf = ({ workers }: Fleet) =>
  Object.fromEntries(
    (['prefill', 'decode'] as const).map((role) => {
      const half = workers.filter((worker) => worker.role === role);
      return [role, { healthy: half.filter(({ isHealthy }) => isHealthy).length, total: half.length }];
    }),
  );

const countsOf = ({ workers }: Fleet) => ({
  healthy_workers: workers.filter((worker) => worker.isHealthy).length,
  total_workers: workers.length,
});

/** Pairs need one worker of each role. */
function canServe({ workers, servesPairs }: Fleet): boolean {
  const roles: readonly Role[] = servesPairs ? ['prefill', 'decode'] : ['regular'];
  return roles.every((role) => workers.some((worker) => worker.role === role && worker.isHealthy));
}
