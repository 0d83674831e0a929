import { signal } from '@preact/signals';
import { html } from 'htm/preact';
import type { SwapRow } from '../../../router/src/admin/dashboard/protocol.ts';
import { state } from '../feed/connection.ts';
import { UNKNOWN, clock, counted, duration, shortUrl } from '../format.ts';
import { type Column, DataTable } from '../parts/data-table.ts';
import type { Sort } from '../parts/rows.ts';
import { go, hrefOf } from '../shell/route.ts';
import { barsOf, spanOf, stages } from './swap-bars.ts';
import type { View } from './views.ts';

export const swaps: View = { id: 'swaps', title: 'Weight swaps', Show, isShown: (about) => about.swaps };

const sort = signal<Sort>({ column: 'began', isDescending: false });

/** Bars that take a smaller share of the time have no room for the name of their stage. */
const MIN_LABELLED = 0.08;

/** The swap of a set of workers. */
interface Swap {
  readonly id: string;
  readonly first: SwapRow;
  readonly rows: readonly SwapRow[];
}

function swapsOf(rows: Iterable<SwapRow>): Swap[] {
  const groups = Map.groupBy(rows, ({ key }) => key.split('|', 2).join('-'));
  return Array.from(groups, ([id, of]) => ({ id, first: of[0]!, rows: of })).toSorted(
    (a, b) => b.first.started_at - a.first.started_at || b.first.seq - a.first.seq,
  );
}

const outcomeOf = ({ first, rows }: Swap): { readonly word: string; readonly sign: string; readonly tone: string } => {
  const failed = rows.filter(({ stage }) => stage === 'error').length;
  if (first.ended_at === null) return { word: 'running', sign: '◐', tone: 'busy' };
  return failed === 0 ? { word: 'done', sign: '●', tone: 'ok' } : { word: `${failed} failed`, sign: '✕', tone: 'bad' };
};

function Show({ rest }: { readonly rest: readonly string[] }) {
  state.follow();
  const all = swapsOf(state.swaps.values());
  const swap = all.find(({ id }) => id === rest[0]) ?? all[0];
  if (swap === undefined)
    return html`<p class="empty">
      No weight swap yet. Start one with <code>turnout swap IDENTITY</code> or POST /swap.
    </p>`;
  return html`<div class="swaps">
    <nav class="swap-list" aria-label="Swaps">
      ${all.map((each) => {
        const { word, sign, tone } = outcomeOf(each);
        return html`<a
          key=${each.id}
          href=${hrefOf('swaps', each.id)}
          aria-current=${each === swap ? 'true' : undefined}
        >
          <b>${each.first.identity}</b>
          <span class=${`state is-${tone}`}><span aria-hidden="true">${sign}</span> ${word}</span>
          <span class="muted">${clock(each.first.started_at)}</span>
        </a>`;
      })}
    </nav>
    <${Timeline} swap=${swap} />
  </div>`;
}

function Timeline({ swap }: { readonly swap: Swap }) {
  const { first, rows } = swap;
  const { from, to } = spanOf(rows, state.at);
  const share = (ms: number): string => `${((ms / (to - from)) * 100).toFixed(3)}%`;
  const timeline = (row: SwapRow) =>
    html`<div class="bars">
      ${barsOf(row, state.at).map(
        (bar) =>
          html`<i
            class=${`bar stage-${bar.stage} ${bar.isRunning ? 'is-running' : ''}`}
            style=${{ left: share(bar.from - from), width: share(bar.to - bar.from) }}
            title=${`${bar.stage}: ${duration((bar.to - bar.from) / 1_000)}${bar.isRunning ? ' so far' : ''}`}
            >${bar.to - bar.from > (to - from) * MIN_LABELLED ? bar.stage : ''}</i
          >`,
      )}
    </div>`;
  const totalOf = (row: SwapRow): number =>
    barsOf(row, state.at).reduce((sum, bar) => sum + bar.to - bar.from, 0) / 1_000;
  const columns: readonly Column<SwapRow>[] = [
    {
      id: 'engine',
      title: 'Engine',
      widthPx: 136,
      value: ({ engine }) => engine,
      text: ({ engine }) => shortUrl(engine),
      cell: ({ engine }) => html`<span title=${engine}>${shortUrl(engine)}</span>`,
    },
    {
      id: 'stage',
      title: 'Stage',
      widthPx: 86,
      from: 'medium',
      value: ({ stage }) => stage,
      cell: ({ stage, error }) =>
        html`<span title=${error}>${stage === 'error' ? '✕ error' : stage === 'done' ? '● done' : `◐ ${stage}`}</span>`,
    },
    {
      id: 'time',
      title: 'Duration',
      widthPx: 76,
      isNumber: true,
      from: 'medium',
      value: totalOf,
      cell: (row) => duration(totalOf(row)),
    },
    { id: 'began', title: `${clock(from)} to ${clock(to)}`, value: ({ began_at }) => began_at, cell: timeline },
  ];
  const deployments = first.deployments.filter((name) => name !== null).join(', ');
  const about = [
    deployments,
    `${first.transition}, weights loaded by the ${first.moved_by}`,
    counted(rows.length, 'engine'),
    first.ended_at === null ? 'running' : `ended ${clock(first.ended_at)}`,
    duration((to - from) / 1_000),
  ]
    .filter((fact) => fact !== '')
    .join(' · ');
  const errors = [...new Set(rows.flatMap(({ error }) => error ?? []))];
  return html`<section class="list" aria-label=${`Swap to ${first.identity}`}>
    <div class="swap-head">
      <h2>${first.identity}</h2>
      <p class="muted">${about}</p>
      <ul class="legend" aria-label="Stages">
        ${stages.map((stage) => html`<li><i class=${`bar stage-${stage}`}></i>${stage}</li>`)}
      </ul>
      ${errors.slice(0, 3).map((error) => html`<p class="why is-bad">${error}</p>`)}
    </div>
    <${DataTable}
      label="Engines of the swap"
      rows=${rows}
      columns=${columns}
      keyOf=${({ key }: SwapRow) => key}
      sort=${sort}
      onOpen=${(row: SwapRow) => go('fleet', row.engine)}
      empty=${UNKNOWN}
    />
  </section>`;
}
