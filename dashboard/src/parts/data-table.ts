import { type Signal, useSignal } from '@preact/signals';
import { html } from 'htm/preact';
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { type Sort, sortRows, windowOf } from './rows.ts';
import { columnPx, textPx } from './widths.ts';

export interface Column<Row> {
  readonly id: string;
  readonly title: string;
  /** Of the column; left out: it takes what is left. */
  readonly widthPx?: number;
  /** The text of its cells. Where it is longer than `widthPx` the column is as wide as the longest one, up to a part of the table. */
  readonly text?: (row: Row) => string;
  readonly isNumber?: boolean;
  /** Shown where the table is wide: from 700 or 1000 px on. */
  readonly from?: 'medium' | 'wide';
  /** Left out: the column does not sort. */
  readonly value?: (row: Row) => string | number | null;
  readonly cell: (row: Row) => ComponentChildren;
}

interface DataTableProps<Row> {
  readonly label: string;
  readonly rows: readonly Row[];
  readonly columns: readonly Column<Row>[];
  readonly keyOf: (row: Row) => string;
  readonly sort: Signal<Sort>;
  /** Key of the row whose details are shown; ''. */
  readonly open?: string;
  readonly onOpen?: (row: Row) => void;
  readonly toneOf?: (row: Row) => string;
  readonly rowPx?: number;
  /** Shown if there are no rows. */
  readonly empty: string;
}

const ROW_PX = 30;

/** A table that draws only the rows in sight. Rows have one height; keys move an active row. */
export function DataTable<Row>(props: DataTableProps<Row>) {
  const { label, columns, keyOf, sort, open = '', onOpen, toneOf, rowPx = ROW_PX, empty } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const view = useSignal({ top: 0, height: 600, width: 0 });
  const active = useSignal('');
  const column = columns.find(({ id }) => id === sort.value.column);
  const rows = column?.value === undefined ? props.rows : sortRows(props.rows, column.value, sort.value.isDescending);
  useLayoutEffect(() => {
    const element = scroller.current!;
    const look = () => {
      view.value = { top: element.scrollTop, height: element.clientHeight, width: element.clientWidth };
    };
    const observer = new ResizeObserver(look);
    observer.observe(element);
    element.addEventListener('scroll', look, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener('scroll', look);
    };
  }, []);

  const { from, to } = windowOf(rows.length, rowPx, view.value.top, view.value.height);
  const at = rows.findIndex((row) => keyOf(row) === active.value);
  const move = (index: number) => {
    const next = Math.max(0, Math.min(rows.length - 1, index));
    if (rows.length === 0) return;
    active.value = keyOf(rows[next]!);
    const element = scroller.current!;
    const top = next * rowPx;
    // The head of the table covers the first row.
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + 2 * rowPx > element.scrollTop + element.clientHeight)
      element.scrollTop = top + 2 * rowPx - element.clientHeight;
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(view.value.height / rowPx) - 2);
    const steps: Readonly<Record<string, number>> = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      PageDown: at + page,
      PageUp: at - page,
      Home: 0,
      End: rows.length - 1,
    };
    const next = steps[event.key];
    if (next !== undefined) move(next);
    else if (event.key === 'Enter' && at >= 0 && event.target === event.currentTarget) onOpen?.(rows[at]!);
    else return;
    event.preventDefault();
  };
  const sortBy = (id: string, isNumber: boolean) => () => {
    const now = sort.value;
    sort.value = { column: id, isDescending: now.column === id ? !now.isDescending : isNumber };
  };
  const widthOf = ({ widthPx, text }: Column<Row>): number | undefined => {
    if (widthPx === undefined || text === undefined) return widthPx;
    return columnPx(widthPx, rows.map(text), view.value.width, textPx);
  };
  const classOf = ({ isNumber, from: least }: Column<Row>): string =>
    `${isNumber === true ? 'number' : ''} ${least === undefined ? '' : `from-${least}`}`;

  return html`<div class="scroller" ref=${scroller}>
    <table
      role="grid"
      tabindex="0"
      aria-label=${label}
      aria-rowcount=${rows.length + 1}
      aria-activedescendant=${at >= from && at < to ? `row-${at}` : undefined}
      onKeyDown=${onKeyDown}
    >
      <colgroup>
        ${columns.map(
          (each) =>
            html`<col
              class=${classOf(each)}
              style=${each.widthPx === undefined ? {} : { width: `${widthOf(each)}px` }}
            />`,
        )}
      </colgroup>
      <thead>
        <tr aria-rowindex="1">
          ${columns.map((each) => {
            const isSorted = sort.value.column === each.id;
            const direction = sort.value.isDescending ? 'descending' : 'ascending';
            return html`<th scope="col" class=${classOf(each)} aria-sort=${isSorted ? direction : undefined}>
              ${
                each.value === undefined
                  ? each.title
                  : html`<button type="button" tabindex="-1" onClick=${sortBy(each.id, each.isNumber === true)}>
                      ${each.title}<span aria-hidden="true"
                        >${isSorted ? (sort.value.isDescending ? ' ▾' : ' ▴') : ''}</span
                      >
                    </button>`
              }
            </th>`;
          })}
        </tr>
      </thead>
      <tbody>
        ${from > 0 && html`<tr aria-hidden="true" key="above" style=${{ height: `${from * rowPx}px` }}></tr>`}
        ${rows.slice(from, to).map((row, i) => {
          const key = keyOf(row);
          const states = `${key === active.value ? 'is-active' : ''} ${key === open ? 'is-open' : ''} ${toneOf?.(row) ?? ''}`;
          return html`<tr
            key=${key}
            id=${`row-${from + i}`}
            class=${states}
            style=${{ height: `${rowPx}px` }}
            aria-rowindex=${from + i + 2}
            aria-selected=${key === open}
            onClick=${() => {
              active.value = key;
              onOpen?.(row);
            }}
          >
            ${columns.map((each) => html`<td class=${classOf(each)}>${each.cell(row)}</td>`)}
          </tr>`;
        })}
        ${
          to < rows.length &&
          html`<tr aria-hidden="true" key="below" style=${{ height: `${(rows.length - to) * rowPx}px` }}></tr>`
        }
      </tbody>
    </table>
    ${rows.length === 0 && html`<p class="empty">${empty}</p>`}
  </div>`;
}
