import { signal } from '@preact/signals';
import { html } from 'htm/preact';
import type { GroupRow } from '../../../router/src/admin/dashboard/protocol.ts';
import { state } from '../feed/connection.ts';
import { UNKNOWN, duration } from '../format.ts';
import { type Column, DataTable } from '../parts/data-table.ts';
import { Filter } from '../parts/filter.ts';
import { type Sort, matches } from '../parts/rows.ts';
import { UnknownSessions, knowsOpenSessions } from '../parts/unknown-sessions.ts';
import { go } from '../shell/route.ts';
import { type GroupProgress, type Lane, groupsOf, lanesOf } from './lanes.ts';
import { TrainerFeed, feedText } from './trainer-feed.ts';
import type { View } from './views.ts';

export const groups: View = { id: 'groups', title: 'Groups', Show };

const sort = signal<Sort>({ column: 'tail', isDescending: true });
const filter = signal('');
/** A row has a line of this many pixels for each session. */
const ROW_PX = 54;
const MAX_LINES = 16;

const isOver = ({ ended, lanes }: GroupProgress): boolean => ended === lanes.length;
/** Since the first session ended; null: no session has ended, or all have. */
const tailMs = (group: GroupProgress): number | null =>
  group.firstEnd === null || isOver(group) ? null : state.at - group.firstEnd;
/** The open session that began first. */
const slowest = ({ lanes }: GroupProgress): Lane | undefined =>
  lanes.filter(({ row }) => row !== null).toSorted((a, b) => a.bars[0]!.from - b.bars[0]!.from)[0];

/** The newest pending group of that name. */
const feedOf = ({ group }: GroupProgress): GroupRow | undefined =>
  [...state.groups.values()].findLast(({ group: name }) => name === group);

const slowestText = (lane: Lane | undefined, group: GroupProgress): string =>
  lane === undefined
    ? isOver(group)
      ? 'all ended'
      : UNKNOWN
    : `${lane.isWaiting ? `▲ ${lane.row?.waits_for}: ` : ''}${lane.session}`;

const columns: readonly Column<GroupProgress>[] = [
  {
    id: 'group',
    title: 'Group',
    widthPx: 150,
    value: ({ group }) => group,
    text: ({ group }) => group,
    cell: ({ group }) => html`<span title=${group}>${group}</span>`,
  },
  {
    id: 'ended',
    title: 'Ended',
    widthPx: 90,
    isNumber: true,
    value: ({ ended, lanes }) => ended && ended / lanes.length,
    cell: ({ ended, lanes }) =>
      html`<span class="meter"
        >${ended ?? UNKNOWN} of ${lanes.length}<i style=${{ width: `${(100 * (ended ?? 0)) / lanes.length}%` }}></i
      ></span>`,
  },
  {
    id: 'tail',
    title: 'Tail',
    widthPx: 90,
    isNumber: true,
    from: 'medium',
    value: tailMs,
    cell: (group) => {
      const ms = tailMs(group);
      return html`<span title="since the first session of the group ended"
        >${ms === null ? UNKNOWN : duration(ms / 1000)}</span
      >`;
    },
  },
  {
    id: 'feed',
    title: 'For the trainer',
    widthPx: 190,
    from: 'medium',
    value: (group) => feedOf(group)?.state ?? null,
    cell: (group) => {
      const row = feedOf(group);
      const text = row === undefined ? UNKNOWN : feedText(row);
      return html`<span title=${text}>${text}</span>`;
    },
  },
  {
    id: 'slowest',
    title: 'Oldest open session',
    widthPx: 170,
    from: 'medium',
    value: (group) => slowest(group)?.session ?? null,
    text: (group) => slowestText(slowest(group), group),
    cell: (group) => {
      const lane = slowest(group);
      const tone = lane === undefined ? 'muted' : lane.isWaiting ? 'state is-warn' : '';
      return html`<span title=${lane?.session} class=${tone}>${slowestText(lane, group)}</span>`;
    },
  },
  {
    id: 'lines',
    title: 'Sessions, since the first turn of the group',
    cell: (group) => html`<${Lines} group=${group} />`,
  },
];

/** A line for each session. The lines of the long tail reach farther to the right than the others. */
function Lines({ group }: { readonly group: GroupProgress }) {
  const { lanes, began, last } = group;
  const shown = lanes.slice(-MAX_LINES);
  const share = (ms: number): string => `${((100 * ms) / Math.max(1, last - began)).toFixed(2)}%`;
  const heightPx = Math.min(8, Math.floor((ROW_PX - 10) / shown.length));
  return html`<div
    class="group-lines"
    title=${lanes.length > shown.length ? `the ${shown.length} sessions that ended last or are open` : ''}
  >
    ${shown.map((lane) => {
      const end = lane.row === null ? lane.bars.at(-1)!.to : last;
      const kind = lane.isWaiting
        ? 'is-wait'
        : lane.row !== null
          ? 'is-open'
          : lane.hasEnded
            ? 'is-ended'
            : 'is-unknown';
      const text = `${lane.session}: ${lane.row === null ? (lane.hasEnded === true ? 'ended' : 'state unknown') : lane.isWaiting ? 'waits' : 'open'}, ${duration((end - lane.bars[0]!.from) / 1000)}`;
      return html`<i
        class=${kind}
        title=${text}
        style=${{ marginLeft: share(lane.bars[0]!.from - began), width: share(end - lane.bars[0]!.from), height: `${heightPx - 1}px` }}
      ></i>`;
    })}
  </div>`;
}

function Show() {
  state.follow();
  const first = state.exchanges[0]?.at ?? state.at;
  const all = groupsOf(lanesOf(state.exchanges, state.sessions, first, state.at, knowsOpenSessions()), state.at);
  const rows = all.filter((group) =>
    matches(
      `${group.group} ${isOver(group) ? 'complete' : group.ended === null ? '' : 'open'} ${group.waiting > 0 ? 'waiting' : ''}`,
      filter.value,
    ),
  );
  const chips = [
    { word: 'open', count: all.filter((group) => group.ended !== null && !isOver(group)).length },
    { word: 'waiting', count: all.filter(({ waiting }) => waiting > 0).length },
    { word: 'complete', count: all.filter(isOver).length },
  ].filter((chip) => chip.count > 0);
  const shown = state.totals.value.feed === null ? columns.filter(({ id }) => id !== 'feed') : columns;
  return html`<section class="list" aria-label="Groups">
    <${TrainerFeed} />
    <${UnknownSessions} />
    <${Filter} filter=${filter} label="Filter groups" shown=${rows.length} all=${all.length} chips=${chips} />
    <ul class="legend lanes-head" aria-label="Lines">
      <li><i class="lane-bar is-ended"></i>ended</li>
      <li><i class="lane-bar is-open"></i>open</li>
      <li><i class="lane-bar is-wait"></i>waits</li>
    </ul>
    <${DataTable}
      label="Groups"
      rows=${rows}
      columns=${shown}
      keyOf=${({ group }: GroupProgress) => group}
      sort=${sort}
      rowPx=${ROW_PX}
      onOpen=${(group: GroupProgress) => go('sessions', (slowest(group) ?? group.lanes.at(-1)!).session)}
      empty=${all.length === 0 ? 'No group had a turn yet. Clients name a group with the header x-turnout-group.' : 'No group matches the filter.'}
    />
  </section>`;
}
