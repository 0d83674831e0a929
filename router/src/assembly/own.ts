import { createAdminApp } from '../admin/app.ts';
import { modelList } from '../admin/model-list.ts';
import { ownEndpoints } from '../admin/own-endpoints.ts';
import type { Discovery } from '../fleet/discover/kubernetes.ts';
import { createRegistry, metricsPage } from '../observe/metrics.ts';
import type { Base } from './base.ts';
import type { Choice, Engines } from './choice.ts';
import type { Extensions } from './extensions.ts';

export type Own = ReturnType<typeof makeOwn>;

/** What the router answers itself: its endpoints and metrics. */
export function makeOwn(base: Base, { fleet }: Engines, choice: Choice, { recorder, tinker, loaded }: Extensions) {
  const { config, live, logging, meters, loopLag, ports, retryBudget, inFlight } = base;
  const { homes, holdQueue, admission, full, watch, choosing } = choice;
  const { breakers, stalls, models } = watch;
  /** Set when discovery starts, after the ports are open. */
  const found: { discovery: Discovery | null } = { discovery: null };
  const registry = createRegistry({
    meters,
    fleet,
    homes,
    openConnections: () => ports.data.connections.size,
    inFlight: () => inFlight.size,
    held: () => holdQueue.counts(),
    admission: () => admission,
    shedByFullWorkers: () => full.shed,
    refusedConnections: () => ports.data.limits.refused,
    retryBufferBytes: () => retryBudget.usedBytes,
    breakers,
    stalls,
    loopLag: loopLag.histogram,
    droppedLogLines: () => logging.droppedLines(),
    discovery: () => found.discovery,
    trajectories: () => recorder?.state ?? null,
    tinker: () => tinker?.counts() ?? null,
  });
  const metricsText = async () => ({
    contentType: registry.contentType,
    text: (await metricsPage(registry)) + (await loaded.metricsText()),
  });
  const app = createAdminApp({
    fleet,
    breakers,
    workerApi: config.workerApi,
    startupTimeoutMs: () => live.current.workerStartupTimeoutSecs * 1000,
    healthTimeoutMs: () => live.current.healthCheckTimeoutSecs * 1000,
    metricsText,
    isDraining: () => ports.data.isDraining,
    policies: choosing.control,
    homes,
    requests: () => inFlight,
    sessionHeaders: () => live.current.sessionHeaders,
    record: recorder,
  });
  loaded.endpoints.addTo(app);
  return { found, metricsText, endpoints: ownEndpoints(app, loaded.endpoints.maxBytes, modelList(models)) };
}
