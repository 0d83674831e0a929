import { signal } from '@preact/signals';
import { html } from 'htm/preact';
import type { ExchangeRow } from '../../../router/src/observe/exchange-rows.ts';
import { state } from '../feed/connection.ts';
import { UNKNOWN, clock, count, duration, shortUrl } from '../format.ts';
import { type Column, DataTable } from '../parts/data-table.ts';
import { Details } from '../parts/details.ts';
import { Filter } from '../parts/filter.ts';
import { type Sort, matches } from '../parts/rows.ts';
import { Turns, useExplanation } from '../parts/why.ts';
import { go, hrefOf } from '../shell/route.ts';
import type { View } from './views.ts';

export const tap: View = { id: 'requests', title: 'Requests', Show };

type Row = Pick<ExchangeRow, Exclude<keyof ExchangeRow, 'candidates'>>;

const sort = signal<Sort>({ column: 'time', isDescending: true });
const filter = signal('');
/** What is shown while the list is paused; null: the list is updated. */
const paused = signal<readonly Row[] | null>(null);

/** A request that took this long is slow, for the filter. */
const SLOW_MS = 5_000;

const isFailed = ({ outcome, status }: Row): boolean => outcome === 'cut' || outcome === 'refused' || status >= 400;

function kindsOf(row: Row): string[] {
  return [
    ...(isFailed(row) ? ['failed'] : []),
    ...(row.attempts > 1 ? ['retried'] : []),
    ...(row.from === null ? [] : ['moved']),
    ...(row.held_for === null && row.queued_ms === 0 ? [] : ['waited']),
    ...(row.ms >= SLOW_MS ? ['slow'] : []),
    ...(row.outcome === 'client_left' ? ['client left'] : []),
  ];
}

const workerText = ({ worker }: Row): string => (worker === null ? UNKNOWN : shortUrl(worker));

const columns: readonly Column<Row>[] = [
  { id: 'time', title: 'Ended', widthPx: 120, value: (row) => row.at + row.ms, cell: (row) => clock(row.at + row.ms) },
  {
    id: 'status',
    title: 'Status',
    widthPx: 74,
    value: ({ status }) => status,
    cell: (row) =>
      isFailed(row)
        ? html`<span class="state is-bad">✕ ${row.status || UNKNOWN}</span>`
        : html`<span class="state is-ok">● ${row.status || UNKNOWN}</span>`,
  },
  {
    id: 'took',
    title: 'Duration',
    widthPx: 78,
    isNumber: true,
    value: ({ ms }) => ms,
    cell: ({ ms }) => duration(ms / 1000),
  },
  {
    id: 'ttft',
    title: 'First byte',
    widthPx: 84,
    isNumber: true,
    from: 'medium',
    value: (row) => row.first_byte_ms,
    cell: (row) => duration(row.first_byte_ms === null ? null : row.first_byte_ms / 1000),
  },
  {
    id: 'prompt',
    title: 'Prompt',
    widthPx: 70,
    isNumber: true,
    from: 'wide',
    value: (row) => row.prompt_tokens,
    cell: (row) => count(row.prompt_tokens),
  },
  {
    id: 'cached',
    title: 'Cached',
    widthPx: 70,
    isNumber: true,
    from: 'wide',
    value: (row) => row.cached_tokens,
    cell: (row) => count(row.cached_tokens),
  },
  {
    id: 'output',
    title: 'Output',
    widthPx: 70,
    isNumber: true,
    from: 'wide',
    value: (row) => row.output_tokens,
    cell: (row) => count(row.output_tokens),
  },
  {
    id: 'session',
    title: 'Session',
    widthPx: 150,
    value: ({ session }) => session,
    text: ({ session }) => session ?? UNKNOWN,
    cell: ({ session }) => html`<span title=${session}>${session ?? UNKNOWN}</span>`,
  },
  {
    id: 'worker',
    title: 'Worker',
    widthPx: 150,
    from: 'medium',
    value: ({ worker }) => worker,
    text: workerText,
    cell: (row) => html`<span title=${row.worker}>${workerText(row)}</span>`,
  },
  {
    id: 'reason',
    title: 'Reason',
    value: ({ reason }) => reason,
    cell: ({ reason, error }) => html`<span title=${reason}>${error ?? reason ?? UNKNOWN}</span>`,
  },
];

function Show({ rest }: { readonly rest: readonly string[] }) {
  state.follow();
  const all: readonly Row[] = paused.value ?? state.exchanges;
  const kinds = new Map(all.map((row) => [row, kindsOf(row)]));
  const rows = all.filter((row) =>
    matches(
      [
        row.id,
        row.session,
        row.group,
        row.worker,
        row.path,
        row.status,
        row.reason,
        row.error,
        ...kinds.get(row)!,
      ].join(' '),
      filter.value,
    ),
  );
  const chips = ['failed', 'retried', 'moved', 'waited', 'slow', 'client left']
    .map((word) => ({ word, count: all.filter((row) => kinds.get(row)!.includes(word)).length }))
    .filter((chip) => chip.count > 0);
  const [id] = rest;
  return html`<div class=${id === undefined ? 'split' : 'split has-details'}>
    <section class="list" aria-label="Finished requests">
      <div class="tap-head">
        <${Filter} filter=${filter} label="Filter requests" shown=${rows.length} all=${all.length} chips=${chips} />
        <button
          type="button"
          aria-pressed=${paused.value !== null}
          onClick=${() => (paused.value = paused.value === null ? state.exchanges : null)}
        >
          ${paused.value === null ? 'Pause' : 'Follow'}
        </button>
      </div>
      ${
        state.dropped > 0 &&
        html`<p class="why">
          ${count(state.dropped)} requests are not listed: more requests ended than the router sends to the page.
        </p>`
      }
      <${DataTable}
        label="Finished requests"
        rows=${rows}
        columns=${columns}
        keyOf=${(row: Row) => `${row.id} ${row.at}`}
        sort=${sort}
        open=${rows.find((row) => row.id === id) && `${id} ${rows.find((row) => row.id === id)!.at}`}
        onOpen=${(row: Row) => go('requests', row.id)}
        toneOf=${(row: Row) => (isFailed(row) ? 'is-bad' : '')}
        empty=${all.length === 0 ? 'No request has ended since you opened this page.' : 'No request matches the filter.'}
      />
    </section>
    ${id !== undefined && html`<${RequestDetails} id=${id} />`}
  </div>`;
}

function RequestDetails({ id }: { readonly id: string }) {
  const { told, problem } = useExplanation(id, 0);
  const session = told?.exchanges.at(-1)?.session ?? null;
  return html`<${Details} label=${`Request ${id}`} title="Why this worker?" isWide onClose=${() => go('requests')}>
    ${session !== null && session !== id && html`<p>Session <a href=${hrefOf('sessions', session)}>${session}</a></p>`}
    ${problem !== '' && html`<p class="why">${problem}</p>`}
    ${told !== null && html`<${Turns} told=${told} isOpen=${() => true} />`}
  <//>`;
}
