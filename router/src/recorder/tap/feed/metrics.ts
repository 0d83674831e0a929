import type { PluginMetrics } from '../../../plugins/plugin-metrics.ts';
import type { FeedStats } from '../../../observe/trainer-feed.ts';

/** What metrics are read from. */
export interface FeedState {
  readonly stats: FeedStats;
  /** Requests that wait for room for their groups. */
  readonly held: number;
}

interface Spec {
  readonly name: string;
  readonly type: 'gauge' | 'counter';
  readonly help: string;
  /** '': it has none. */
  readonly label: string;
  /** By the value of the label. */
  readonly read: (state: FeedState) => Readonly<Record<string, number | undefined>>;
}

const gauge = (name: string, help: string, read: Spec['read'], label = ''): Spec => ({
  name,
  type: 'gauge',
  help,
  label,
  read,
});
const counter = (name: string, help: string, read: Spec['read'], label = ''): Spec => ({
  name,
  type: 'counter',
  help,
  label,
  read,
});

export const feedMetrics: readonly Spec[] = [
  gauge(
    'turnout_feed_groups',
    'Groups of the feed: open (members are missing), ready (no consumer has them), leased (a consumer has them).',
    ({ stats: { open, ready, leased } }) => ({ open, ready, leased }),
    'state',
  ),
  gauge('turnout_feed_pending_members', 'Sessions of these groups.', ({ stats }) => ({ '': stats.pendingMembers })),
  gauge('turnout_feed_waiting_consumers', 'Consumers that wait for a group.', ({ stats }) => ({
    '': stats.waitingConsumers,
  })),
  gauge('turnout_feed_held_requests', 'Requests that wait because a new group would be one too many.', ({ held }) => ({
    '': held,
  })),
  counter('turnout_feed_groups_total', 'Groups that began.', ({ stats }) => ({ '': stats.groups })),
  counter('turnout_feed_members_total', 'Sessions that joined a group, or came too late for it.', ({ stats }) => ({
    '': stats.members,
  })),
  counter('turnout_feed_acked_groups_total', 'Groups that a consumer acknowledged.', ({ stats }) => ({
    '': stats.acked,
  })),
  counter('turnout_feed_acked_members_total', 'Sessions of these groups.', ({ stats }) => ({
    '': stats.ackedMembers,
  })),
  counter(
    'turnout_feed_dropped_groups_total',
    'Groups that were dropped, by reason.',
    ({ stats }) => stats.droppedGroups,
    'reason',
  ),
  counter(
    'turnout_feed_dropped_members_total',
    'Sessions that were not delivered, by reason.',
    ({ stats }) => stats.droppedMembers,
    'reason',
  ),
  counter('turnout_feed_deliveries_total', 'Deliveries of groups, repeated ones included.', ({ stats }) => ({
    '': stats.deliveries,
  })),
  counter('turnout_feed_expired_leases_total', 'Leases that passed without an ack.', ({ stats }) => ({
    '': stats.expiredLeases,
  })),
  counter('turnout_feed_full_total', 'Requests that found no room for a new group.', ({ stats }) => ({
    '': stats.refused,
  })),
];

export function addFeedMetrics(metrics: PluginMetrics, state: () => FeedState): void {
  for (const { name, type, help, label, read } of feedMetrics) {
    const labelNames = label === '' ? [] : [label];
    const values = (): [labels: Record<string, string>, value: number][] =>
      Object.entries(read(state())).map(([value, count = 0]) => [label === '' ? {} : { [label]: value }, count]);
    if (type === 'gauge') {
      const made = metrics.gauge({
        name,
        help,
        labelNames,
        collect() {
          for (const [labels, value] of values()) made.set(labels, value);
        },
      });
      continue;
    }
    const made = metrics.counter({
      name,
      help,
      labelNames,
      collect() {
        made.reset();
        for (const [labels, value] of values()) made.inc(labels, value);
      },
    });
  }
}
