import { signal } from '@preact/signals';
import { html } from 'htm/preact';
import type { SessionRow } from '../../../router/src/admin/dashboard/protocol.ts';
import { state } from '../feed/connection.ts';
import { UNKNOWN, clock, count, duration, shortUrl } from '../format.ts';
import { type Column, DataTable } from '../parts/data-table.ts';
import { Details } from '../parts/details.ts';
import { type Fact, Facts } from '../parts/facts.ts';
import { Filter } from '../parts/filter.ts';
import { type Sort, matches } from '../parts/rows.ts';
import { UnknownSessions, knowsOpenSessions } from '../parts/unknown-sessions.ts';
import { Turns, useExplanation } from '../parts/why.ts';
import { WorkerLegend, colourOf, workerNumbers } from '../parts/worker-colours.ts';
import { go, hrefOf } from '../shell/route.ts';
import { type Bar, type Lane, lanesOf } from './lanes.ts';
import type { View } from './views.ts';

export const sessions: View = { id: 'sessions', title: 'Sessions', Show };

const sort = signal<Sort>({ column: 'state', isDescending: false });
const filter = signal('');
const ranges = [
  { secs: 30, text: '30 s' },
  { secs: 120, text: '2 min' },
  { secs: 600, text: '10 min' },
] as const;
/** null: the shortest range that has all turns that the page knows. */
const chosenSecs = signal<number | null>(null);
/** Bars that take a smaller share of the time range have no room for the number of their worker. */
const MIN_LABELLED = 0.04;

const phaseWords: Readonly<Record<string, string>> = {
  receiving: 'receiving',
  waiting_for_first_byte: 'first byte',
  streaming: 'streaming',
};

const waitedSecs = (since: number): number => Math.max(0, state.at - since) / 1000;

function stateOf({ row, hasEnded }: Lane) {
  if (row === null) return { rank: 4, tone: 'muted', text: hasEnded === true ? 'ended' : UNKNOWN };
  const { waits_since: since } = row;
  if (since !== null) {
    const waited = waitedSecs(since);
    return { rank: -waited, tone: 'warn', text: `${row.phase} ${duration(waited)}: ${row.waits_for}` };
  }
  if (row.phase !== null) return { rank: 2, tone: 'busy', text: `◐ ${phaseWords[row.phase] ?? row.phase}` };
  return { rank: 3, tone: 'muted', text: `idle ${duration((state.at - (row.last ?? state.at)) / 1000)}` };
}

/** Sessions that wait come first, the longest wait before the others; then sessions that moved. */
const rankOf = (lane: Lane): number => (!lane.isWaiting && lane.hasMoved ? 1 : stateOf(lane).rank);

const wordsOf = (lane: Lane): string =>
  [
    lane.session,
    lane.group,
    lane.row?.worker,
    stateOf(lane).text,
    ...lane.bars.map(({ left, text }) => (left === null ? '' : text)),
    ...(lane.isWaiting ? ['waiting'] : []),
    ...(lane.hasMoved ? ['moved'] : []),
  ].join(' ');

function Show({ rest }: { readonly rest: readonly string[] }) {
  state.follow();
  const to = state.at;
  const knownSecs = (to - (state.exchanges[0]?.at ?? to)) / 1000;
  const rangeSecs = chosenSecs.value ?? (ranges.find(({ secs }) => secs >= knownSecs) ?? ranges.at(-1)!).secs;
  const from = to - rangeSecs * 1000;
  const numbers = workerNumbers();
  const all = lanesOf(state.exchanges, state.sessions, from, to, knowsOpenSessions());
  const lanes = filter.value === '' ? all : all.filter((lane) => matches(wordsOf(lane), filter.value));
  const chips = [
    { word: 'waiting', count: all.filter(({ isWaiting }) => isWaiting).length },
    { word: 'moved', count: all.filter(({ hasMoved }) => hasMoved).length },
  ].filter((chip) => chip.count > 0);
  const [open] = rest;
  return html`<div class=${open === undefined ? 'split' : 'split has-details is-wide'}>
    <section class="list" aria-label="Sessions">
      <${UnknownSessions} />
      <${Filter} filter=${filter} label="Filter sessions" shown=${lanes.length} all=${all.length} chips=${chips} />
      <div class="lanes-head">
        <${WorkerLegend} numbers=${numbers} />
        <div class="ranges" role="group" aria-label="Time that is shown">
          ${ranges.map(
            ({ secs, text }) =>
              html`<button
                type="button"
                class="chip"
                aria-pressed=${secs === rangeSecs}
                onClick=${() => (chosenSecs.value = secs)}
              >
                ${text}
              </button>`,
          )}
        </div>
      </div>
      <${DataTable}
        label="Sessions"
        rows=${lanes}
        columns=${columnsFor(from, to, numbers)}
        keyOf=${({ session }: Lane) => session}
        sort=${sort}
        open=${open}
        onOpen=${({ session }: Lane) => go('sessions', session)}
        toneOf=${({ isWaiting }: Lane) => (isWaiting ? 'is-warn' : '')}
        empty=${all.length === 0 ? 'No session had a turn in this time range. Clients name a session with the header x-session-id.' : 'No session matches the filter.'}
      />
    </section>
    ${open !== undefined && html`<${SessionDetails} session=${open} />`}
  </div>`;
}

const columnsFor = (from: number, to: number, numbers: ReadonlyMap<string, number>): readonly Column<Lane>[] => [
  {
    id: 'session',
    title: 'Session',
    widthPx: 150,
    value: ({ session }) => session,
    text: ({ session, isWaiting }) => `${isWaiting ? '▲ ' : ''}${session}`,
    cell: ({ session, isWaiting }) =>
      html`<span title=${session}
        >${isWaiting && html`<span class="state is-warn" aria-label="waits">▲ </span>`}${session}</span
      >`,
  },
  {
    id: 'state',
    title: 'State',
    widthPx: 150,
    from: 'medium',
    value: rankOf,
    text: (lane) => stateOf(lane).text,
    cell: (lane) => {
      const { tone, text } = stateOf(lane);
      return html`<span class=${tone === 'muted' ? 'muted' : `state is-${tone}`} title=${text}>${text}</span>`;
    },
  },
  {
    id: 'turns',
    title: 'Turns',
    widthPx: 60,
    isNumber: true,
    from: 'medium',
    value: ({ row }) => row?.turns ?? null,
    cell: ({ row }) => count(row?.turns),
  },
  {
    id: 'moves',
    title: 'Moves',
    widthPx: 64,
    isNumber: true,
    from: 'medium',
    value: ({ row }) => row?.moves ?? null,
    cell: ({ row }) => count(row?.moves),
  },
  {
    id: 'lane',
    title: `${clock(from)} to ${clock(to)}`,
    cell: ({ bars }) => html`<${LaneBars} ...${{ bars, from, to, numbers }} />`,
  },
];

interface LaneBarsProps {
  readonly bars: readonly Bar[];
  readonly from: number;
  readonly to: number;
  readonly numbers: ReadonlyMap<string, number>;
}

function LaneBars({ bars, from, to, numbers }: LaneBarsProps) {
  const share = (ms: number): string => `${((100 * ms) / (to - from)).toFixed(2)}%`;
  return html`<div class="lane">
    ${bars.map((bar) => {
      const start = Math.max(from, bar.from);
      const number = numbers.get(bar.worker ?? '') ?? 0;
      const classes = [
        'lane-bar',
        bar.isWait ? 'is-wait' : colourOf(number),
        bar.isRunning ? 'is-running' : '',
        bar.isFailed ? 'is-failed' : '',
      ];
      const isWide = bar.to - start > (to - from) * MIN_LABELLED;
      const title = `${bar.text}${bar.worker === null ? '' : ` (${shortUrl(bar.worker)})`}, ${duration((bar.to - bar.from) / 1000)}`;
      return html`<i
          class=${classes.join(' ')}
          style=${{ left: share(start - from), width: share(bar.to - start) }}
          title=${title}
          >${bar.isFailed ? '✕' : isWide && !bar.isWait && number > 0 ? number : ''}</i
        >${
          bar.left !== null &&
          html`<span
            class="move at"
            style=${{ left: share(start - from) }}
            title=${`moved from ${shortUrl(bar.left)}: ${bar.text}`}
            >▲</span
          >`
        }`;
    })}
  </div>`;
}

/** For what a session waits, and since when. */
const waitOf = ({ phase, waits_text: text, waits_since: since }: SessionRow): string =>
  `${phase} since ${clock(since!)}, for ${duration(waitedSecs(since!))}: it waits for ${text}`;

function SessionDetails({ session }: { readonly session: string }) {
  state.follow();
  const row = state.sessions.get(session);
  const { told, problem } = useExplanation(session, `${row?.turns} ${row?.in_flight} ${row?.phase}`);
  const facts: readonly Fact[] =
    row === undefined
      ? [['State', knowsOpenSessions() ? 'ended, or unknown to the router' : UNKNOWN]]
      : [
          ...(row.waits_since === null ? [] : [['Waits', waitOf(row)] as const]),
          ['Worker', row.worker === null ? UNKNOWN : shortUrl(row.worker)],
          ['Group', row.group || UNKNOWN],
          ['Turns', count(row.turns)],
          ['Moves', count(row.moves)],
          ...(row.move === null ? [] : [['Last move', `${row.move.text}, ${clock(row.move.at)}`] as const]),
        ];
  return html`<${Details} label=${`Session ${session}`} title=${session} isWide onClose=${() => go('sessions')}>
    <${Facts} facts=${facts} />
    ${state.about.value?.captures === true && html`<p><a href=${hrefOf('tokens', session)}>Tokens of the trajectory</a></p>`}
    ${problem !== '' && html`<p class="why">${problem}</p>`}
    ${
      told !== null &&
      html`<${Turns}
        told=${told}
        isOpen=${(turn: { id: string; from: string | null; attempts: number }) =>
          turn.from !== null || turn.attempts > 1 || turn.id === told.exchanges.at(-1)?.id}
      />`
    }
  <//>`;
}
