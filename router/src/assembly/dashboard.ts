import type { FeedSources } from '../admin/dashboard/feed-tables.ts';
import { version } from '../config/version.ts';
import type { ExchangeRows } from '../observe/exchange-rows.ts';
import type { RecentExchanges } from '../observe/recent-exchanges.ts';
import type { Base } from './base.ts';
import type { Choice, Engines } from './choice.ts';
import type { Extensions } from './extensions.ts';

/** What the dashboard shows; null with --dashboard off. */
export async function dashboardSources(
  { config, live, meters, inFlight }: Base,
  { fleet }: Engines,
  { homes, holdQueue, admission, watch, table }: Choice,
  { recorder, swaps }: Extensions,
  rows: ExchangeRows,
  recent: RecentExchanges | null,
): Promise<FeedSources | null> {
  if (config.dashboard === 'off') return null;
  const { History } = await import('../observe/history.ts');
  const { breakers, stalls } = watch;
  return {
    fleet,
    breakers,
    stalls,
    meters,
    homes,
    history: new History({
      meters,
      inFlight: () => inFlight.size,
      queued: () => admission.waiting.concurrency + admission.waiting.rate,
      held: () => holdQueue.size,
    }),
    swaps: swaps?.deployments ?? null,
    requests: () => inFlight,
    sessionHeaders: () => live.current.sessionHeaders,
    healthTimeoutMs: () => live.current.healthCheckTimeoutSecs * 1000,
    about: () => ({
      version,
      policies: Array.from(table.entries(), ([model, { name }]) => (model === '' ? name : `${model}: ${name}`)),
      started_at: Math.round(performance.timeOrigin),
      swaps: swaps !== null,
      captures: recorder !== null,
    }),
    lastExchanges: (count) => recent?.last(count) ?? [],
    exchanges: (take) => rows.listen({ isOn: true, take }),
  };
}
