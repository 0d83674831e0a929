import { signal, useSignalEffect } from '@preact/signals';
import { html } from 'htm/preact';
import type { WorkerRow } from '../../../router/src/admin/dashboard/protocol.ts';
import { state } from '../feed/connection.ts';
import { hitRateOf } from '../feed/rates.ts';
import { UNKNOWN, count, duration, percent, rate, shortUrl } from '../format.ts';
import { type Column, DataTable } from '../parts/data-table.ts';
import { Filter } from '../parts/filter.ts';
import { Meter } from '../parts/meter.ts';
import { type Sort, matches } from '../parts/rows.ts';
import { StateBadge, stateOf } from '../parts/worker-state.ts';
import { go, route } from '../shell/route.ts';
import { type Slowness, slowWorkers } from './slow-workers.ts';
import type { View } from './views.ts';
import { WorkerDetails } from './worker-details.ts';

export const fleet: View = { id: 'fleet', title: 'Fleet', Show };

const sort = signal<Sort>({ column: 'state', isDescending: false });
const filter = signal('');
/** Above this share an engine evicts prefixes that sessions still need. */
const FULL = 0.95;

const recent = (row: WorkerRow) => state.rates.of(row.id);

/** Recent, or since the router started. */
const hitRateAt = (row: WorkerRow): number | null =>
  recent(row).hitRate ?? hitRateOf(row.cached_tokens, row.cacheable_prompt_tokens);

const versionOf = ({ swap, weight_version }: WorkerRow): string | null => swap?.snapshot ?? weight_version;

const number = (
  id: string,
  title: string,
  widthPx: number,
  value: (row: WorkerRow) => number | null,
  format: (value: number | null) => string,
  from?: 'medium' | 'wide',
): Column<WorkerRow> => ({
  id,
  title,
  widthPx,
  value,
  isNumber: true,
  ...(from === undefined ? {} : { from }),
  cell: (row) => format(value(row)),
});

const columnsOf = (slow: ReadonlyMap<string, Slowness>): readonly Column<WorkerRow>[] => [
  {
    id: 'worker',
    title: 'Worker',
    value: ({ url }) => url,
    cell: ({ url }) => html`<span title=${url}>${shortUrl(url)}</span>`,
  },
  {
    id: 'state',
    title: 'State',
    widthPx: 112,
    value: (row) => stateOf(row, slow.has(row.id)).rank,
    cell: (row) => html`<${StateBadge} row=${row} isSlow=${slow.has(row.id)} />`,
  },
  { id: 'role', title: 'Role', widthPx: 66, from: 'wide', value: ({ role }) => role, cell: ({ role }) => role },
  number('in_flight', 'In flight', 72, ({ in_flight }) => in_flight, count),
  number('queue', 'Queue', 62, ({ engine_waiting }) => engine_waiting, count, 'medium'),
  {
    id: 'kv',
    title: 'KV use',
    widthPx: 66,
    isNumber: true,
    value: ({ kv_use }) => kv_use,
    cell: ({ kv_use }) => html`<${Meter} share=${kv_use} isWarning=${(kv_use ?? 0) > FULL} />`,
  },
  number('hits', 'Hit rate', 70, hitRateAt, percent, 'medium'),
  number('ttft', 'TTFT', 74, ({ first_token_secs }) => first_token_secs, duration, 'medium'),
  number('gap', 'Token gap', 84, ({ token_gap_secs }) => token_gap_secs, duration, 'medium'),
  number('output', 'Tokens/s', 76, (row) => recent(row).outputPerSec, rate, 'medium'),
  number('responses', 'Requests/s', 86, (row) => recent(row).responsesPerSec, rate, 'wide'),
  number('failures', 'Failed', 64, ({ failures }) => failures, count, 'wide'),
  {
    id: 'breaker',
    title: 'Breaker',
    widthPx: 82,
    from: 'wide',
    value: ({ breaker }) => breaker,
    cell: ({ breaker }) =>
      breaker === 'closed' ? html`<span class="muted">closed</span>` : html`<b>${breaker.replace('_', '-')}</b>`,
  },
  {
    id: 'version',
    title: 'Weights',
    widthPx: 96,
    from: 'wide',
    value: versionOf,
    cell: (row) => html`<span title=${versionOf(row)}>${versionOf(row) ?? UNKNOWN}</span>`,
  },
];

const textOf = (row: WorkerRow, isSlow: boolean): string =>
  [
    row.url,
    stateOf(row, isSlow).word,
    row.role,
    row.engine,
    row.breaker,
    versionOf(row),
    ...(row.models ?? []),
    ...row.reasons,
  ].join(' ');

function Show({ rest }: { readonly rest: readonly string[] }) {
  state.follow();
  useSignalEffect(() => {
    const [, first, word] = route.value;
    if (first === 'filter') filter.value = word ?? '';
  });
  const all = [...state.workers.values()];
  const slow = slowWorkers(all);
  const stateNow = (row: WorkerRow) => stateOf(row, slow.has(row.id));
  const rows = all.filter((row) => matches(textOf(row, slow.has(row.id)), filter.value));
  const hasRoles = all.some(({ role }) => role !== 'regular');
  const open = all.find(({ url }) => url === rest[0]);
  const states = Map.groupBy(all, (row) => stateNow(row).word);
  const chips = Array.from(states, ([word, of]) => ({ word, count: of.length, rank: stateNow(of[0]!).rank })).toSorted(
    (a, b) => b.rank - a.rank,
  );
  return html`<div class=${open === undefined ? 'split' : 'split has-details'}>
    <section class="list" aria-label="Workers">
      <${Filter} filter=${filter} label="Filter workers" shown=${rows.length} all=${all.length} chips=${chips} />
      <${DataTable}
        label="Workers"
        rows=${rows}
        columns=${columnsOf(slow).filter(({ id }) => id !== 'role' || hasRoles)}
        keyOf=${({ id }: WorkerRow) => id}
        sort=${sort}
        open=${open?.id}
        onOpen=${(row: WorkerRow) => go('fleet', row.url)}
        toneOf=${(row: WorkerRow) => (stateOf(row).tone === 'bad' ? 'is-bad' : '')}
        empty=${all.length === 0 ? 'There are no workers. Add one with POST /workers or --worker-urls.' : 'No worker matches the filter.'}
      />
    </section>
    ${open && html`<${WorkerDetails} row=${open} slowness=${slow.get(open.id)} onClose=${() => go('fleet')} />`}
  </div>`;
}
