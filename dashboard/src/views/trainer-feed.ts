import { html } from 'htm/preact';
import type { GroupRow } from '../../../router/src/admin/dashboard/protocol.ts';
import { state } from '../feed/connection.ts';
import { counted } from '../format.ts';
import { type Fact, Facts } from '../parts/facts.ts';

/** Whom a group waits for, or who has it. */
export function feedText({ state: phase, members, not_begun: missing, leased_to: consumer }: GroupRow): string {
  if (phase === 'leased') return `with ${consumer === null || consumer === '' ? 'a consumer' : consumer}`;
  if (phase === 'judged') return 'its records are read';
  const waits = Map.groupBy(
    members.filter(({ waits_for: what }) => what !== null),
    ({ waits_for: what }) => what,
  );
  const words = Array.from(waits, ([what, those]) => `${what}: ${those.map(({ session }) => session).join(', ')}`);
  if (phase === 'ready' && words.length === 0) return 'ready';
  return [...words, ...(missing > 0 ? [`${missing} not begun`] : [])].join('; ');
}

/** `constant_reward 2, stale 1` */
const reasonsText = (counts: Readonly<Record<string, number | undefined>>): string =>
  Object.entries(counts)
    .map(([reason, count]) => `${reason} ${count ?? 0}`)
    .join(', ') || 'none';

/** The plugin `feed` as a whole; nothing where it is not loaded. */
export function TrainerFeed() {
  const { feed } = state.totals.value;
  if (feed === null) return null;
  const pending = feed.open + feed.ready + feed.leased;
  const facts: Fact[] = [
    ['Groups for the trainer', `${feed.open} open, ${feed.ready} ready, ${feed.leased} with consumers`],
    ['Pending', feed.maxPending === null ? String(pending) : `${pending} (at most ${feed.maxPending} of an API key)`],
    ['Acknowledged', `${counted(feed.acked, 'group')}, ${counted(feed.ackedMembers, 'session')}`],
    ['Dropped groups', reasonsText(feed.droppedGroups)],
    ['Dropped sessions', reasonsText(feed.droppedMembers)],
    ['Consumers that wait', String(feed.waitingConsumers)],
    ...(feed.version === null ? [] : [['Newest weights', feed.version] as const]),
    ...(feed.wanted === null ? [] : [['The step wants', counted(feed.wanted, 'more group')] as const]),
  ];
  return html`<${Facts} facts=${facts} />`;
}
