import { createAdminApp } from '../admin/app.ts';
import { modelList, ownEndpoints } from '../admin/own-endpoints.ts';
import type { Exchange } from '../exchange.ts';
import type { Discovery } from '../fleet/discover/kubernetes.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { FleetModels } from '../fleet/fleet-models.ts';
import { ExchangeRows } from '../observe/exchange-rows.ts';
import { createRegistry, metricsPage } from '../observe/metrics.ts';
import { PeerMeters } from '../observe/peer-meters.ts';
import { RecentExchanges } from '../observe/recent-exchanges.ts';
import type { Base } from './base.ts';
import type { Choice, Engines } from './choice.ts';
import { dashboardSources } from './dashboard.ts';
import type { Extensions } from './extensions.ts';

export type Own = Awaited<ReturnType<typeof makeOwn>>;

/** The name of a request's model for metrics: one that is served, since clients may write any. */
const modelLabel =
  (fleet: Fleet, models: FleetModels) =>
  (x: Exchange): string => {
    if (models.areSeveral) return models.isServed(x.model) ? x.model : 'default';
    return fleet.workers[0]?.models?.keys().next().value ?? 'default';
  };

/** What the router answers itself: its endpoints and metrics. */
export async function makeOwn(base: Base, engines: Engines, choice: Choice, extensions: Extensions) {
  const { fleet } = engines;
  const { recorder, tinker, swaps, resume, loaded } = extensions;
  const { config, live, logging, meters, loopLag, pace, ports, retryBudget, inFlight } = base;
  const { homes, holdQueue, admission, full, watch, choosing, table, policyMeters, tracing } = choice;
  const { breakers, health, stalls, models } = watch;
  /** Set when discovery starts, after the ports are open. */
  const found: { discovery: Discovery | null } = { discovery: null };
  /** The finished exchanges, for all that show them. */
  const rows = new ExchangeRows(
    live.of(({ sessionHeaders }) => ({ sessionHeaders })),
    table.nameFor.bind(table),
  );
  const recent = config.explainBufferBytes > 0 ? new RecentExchanges(config.explainBufferBytes) : null;
  if (recent !== null) rows.listen(recent);
  const peers =
    config.metricsCompat === 'off' ? null : new PeerMeters(table.nameFor.bind(table), modelLabel(fleet, models));
  const sources = {
    meters,
    fleet,
    homes,
    openConnections: () => ports.data.connections.size,
    inFlight: () => inFlight.size,
    held: () => holdQueue.counts(),
    heldSinceMs: () => holdQueue.oldestMs(),
    admission: () => admission,
    shedByFullWorkers: () => full.shed,
    refusedConnections: () => ports.data.limits.refused,
    retryBufferBytes: () => retryBudget.usedBytes,
    breakers,
    stalls,
    loopLag: loopLag.histogram,
    pace,
    droppedLogLines: () => logging.droppedLines(),
    discovery: () => found.discovery,
    trajectories: () => recorder?.state ?? null,
    tinker: () => tinker?.counts() ?? null,
    swaps: () => swaps?.counters ?? null,
    resume: () => resume,
    snapshotLags: () => swaps?.answers.lags ?? null,
    peers,
    recent,
    policies: policyMeters.byPolicy,
    policyIndexes: () => table.indexSizes(),
    spans: tracing?.export.counters ?? null,
  };
  const registry = createRegistry(sources, config.metricsCompat === 'off' ? null : config.metricsCompat);
  const metricsText = async () => ({
    contentType: registry.contentType,
    text: (await metricsPage(registry)) + (await loaded.metricsText()),
  });
  const dashboard = await dashboardSources(base, engines, choice, extensions, rows, recent);
  const app = createAdminApp({
    fleet,
    breakers,
    meters,
    health,
    dashboard,
    workerApi: config.workerApi,
    startupTimeoutMs: () => live.current.workerStartupTimeoutSecs * 1000,
    healthTimeoutMs: () => live.current.healthCheckTimeoutSecs * 1000,
    metricsText,
    isDraining: () => ports.data.isDraining,
    problem: () => recorder?.problem ?? null,
    policies: choosing.control,
    homes,
    requests: () => inFlight,
    sessionHeaders: () => live.current.sessionHeaders,
    rows,
    recent,
    record: recorder,
  });
  loaded.endpoints.addTo(app);
  const endpoints = ownEndpoints(app, loaded.endpoints.maxBytes, modelList(models));
  extensions.own.isOwn = endpoints.isOwn;
  return {
    found,
    peers,
    rows,
    metricsText,
    history: dashboard?.history ?? null,
    endpoints,
  };
}
