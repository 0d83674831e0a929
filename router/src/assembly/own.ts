import { createAdminApp } from '../admin/app.ts';
import type { FeedSources } from '../admin/dashboard/feed-tables.ts';
import { modelList, ownEndpoints } from '../admin/own-endpoints.ts';
import { version } from '../config/version.ts';
import type { Exchange } from '../exchange.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { FleetModels } from '../fleet/fleet-models.ts';
import { ExchangeRows } from '../observe/exchange-rows.ts';
import { createRegistry, metricsPage } from '../observe/metrics.ts';
import { PeerMeters } from '../observe/peer-meters.ts';
import { RecentExchanges } from '../observe/recent-exchanges.ts';
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
export async function makeOwn(parts: Extensions) {
  const { config, live, inFlight, ports, fleet, policyFor, watch, choosing, recorder, loaded } = parts;
  const { models } = watch;
  const sessionHeaders = () => live.current.sessionHeaders;
  const healthTimeoutMs = () => live.current.healthCheckTimeoutSecs * 1000;
  const requests = () => inFlight;
  const rows = new ExchangeRows(
    live.of((options) => ({ sessionHeaders: options.sessionHeaders })),
    policyFor,
  );
  const recent = config.explainBufferBytes > 0 ? new RecentExchanges(config.explainBufferBytes) : null;
  if (recent !== null) rows.listen(recent.take);
  const compat = config.metricsCompat === 'off' ? null : config.metricsCompat;
  const peers = compat && new PeerMeters(policyFor, modelLabel(fleet, models));
  const registry = createRegistry({ ...parts, ...watch, peers, recent }, compat);
  const metricsText = async () => ({
    contentType: registry.contentType,
    text: (await metricsPage(registry)) + (await loaded.metricsText()),
  });
  const shown = { ...parts, ...watch, requests, sessionHeaders, healthTimeoutMs, rows, recent };
  const dashboard = config.dashboard === 'off' ? null : await dashboardSources(shown);
  const app = createAdminApp({
    ...shown,
    dashboard,
    workerApi: config.workerApi,
    startupTimeoutMs: () => live.current.workerStartupTimeoutSecs * 1000,
    metricsText,
    isDraining: () => ports.data.isDraining,
    problem: () => recorder?.problem ?? null,
    policies: choosing.control,
    record: recorder,
    feedStats: () => recorder?.feed?.stats() ?? null,
  });
  loaded.endpoints.addTo(app);
  const endpoints = ownEndpoints(app, loaded.endpoints.maxBytes, modelList(models));
  parts.own.isOwn = endpoints.isOwn;
  const metricsPages = { metricsText, probe: async (path: string) => app.request(path) };
  return { ...parts, peers, rows, metricsPages, history: dashboard?.history ?? null, endpoints };
}

interface Shown
  extends Extensions, Pick<FeedSources, 'requests' | 'sessionHeaders' | 'healthTimeoutMs' | 'breakers' | 'stalls'> {
  readonly rows: ExchangeRows;
  readonly recent: RecentExchanges | null;
}

async function dashboardSources(shown: Shown): Promise<FeedSources> {
  const { meters, inFlight, admission, holdQueue, swaps, recorder, table, facts, rows, recent } = shown;
  const { History } = await import('../observe/history.ts');
  return {
    ...shown,
    history: new History({
      meters,
      inFlight: () => inFlight.size,
      queued: () => admission.waiting.concurrency + admission.waiting.rate,
      held: () => holdQueue.size,
    }),
    swaps: swaps?.deployments ?? null,
    trainerFeed: recorder?.feed ?? null,
    about: () => ({
      version,
      policies: Array.from(table.entries(), ([model, { name }]) => (model === '' ? name : `${model}: ${name}`)),
      started_at: Math.round(performance.timeOrigin),
      swaps: swaps !== null,
      captures: recorder !== null,
    }),
    knowsSessions: () => facts.readsKeys,
    lastExchanges: (count) => recent?.last(count) ?? [],
    exchanges: (take) => rows.listen(take),
  };
}
