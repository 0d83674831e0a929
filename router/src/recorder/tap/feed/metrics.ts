import { type MetricSpec, counter, each, gauge, one } from '../../../observe/metrics/spec.ts';
import type { FeedStats } from '../../../observe/trainer-feed.ts';

/** What metrics are read from. */
export interface FeedState {
  readonly stats: FeedStats;
  /** Requests that wait for room for their groups. */
  readonly held: number;
}

export const feedMetrics: readonly MetricSpec<FeedState>[] = [
  gauge(
    'turnout_feed_groups',
    'Groups of the feed: open (members are missing), ready (no consumer has them), leased (a consumer has them).',
    ({ stats: { open, ready, leased } }) => each('state', Object.entries({ open, ready, leased })),
    ['state'],
  ),
  gauge('turnout_feed_pending_members', 'Sessions of these groups.', ({ stats }) => one(stats.pendingMembers)),
  gauge('turnout_feed_waiting_consumers', 'Consumers that wait for a group.', ({ stats }) =>
    one(stats.waitingConsumers),
  ),
  gauge('turnout_feed_held_requests', 'Requests that wait because a new group would be one too many.', ({ held }) =>
    one(held),
  ),
  counter('turnout_feed_groups_total', 'Groups that began.', ({ stats }) => one(stats.groups)),
  counter('turnout_feed_members_total', 'Sessions that joined a group, or came too late for it.', ({ stats }) =>
    one(stats.members),
  ),
  counter('turnout_feed_acked_groups_total', 'Groups that a consumer acknowledged.', ({ stats }) => one(stats.acked)),
  counter('turnout_feed_acked_members_total', 'Sessions of these groups.', ({ stats }) => one(stats.ackedMembers)),
  counter(
    'turnout_feed_dropped_groups_total',
    'Groups that were dropped, by reason.',
    ({ stats }) => each('reason', Object.entries(stats.droppedGroups)),
    ['reason'],
  ),
  counter(
    'turnout_feed_dropped_members_total',
    'Sessions that were not delivered, by reason.',
    ({ stats }) => each('reason', Object.entries(stats.droppedMembers)),
    ['reason'],
  ),
  counter('turnout_feed_deliveries_total', 'Deliveries of groups, repeated ones included.', ({ stats }) =>
    one(stats.deliveries),
  ),
  counter('turnout_feed_expired_leases_total', 'Leases that passed without an ack.', ({ stats }) =>
    one(stats.expiredLeases),
  ),
  counter('turnout_feed_full_total', 'Requests that found no room for a new group.', ({ stats }) => one(stats.refused)),
];
