import { html } from 'htm/preact';
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { timeOfDay } from '../format.ts';
import { axisPx, textPx } from './widths.ts';
import { theme } from '../shell/theme.ts';

export interface Series {
  readonly label: string;
  /** A variable of `style.css`, without its dashes. */
  readonly colour: string;
  /** Dash and gap, px: lines must differ in more than their colours. */
  readonly dash?: readonly number[];
  readonly values: readonly (number | null)[];
}

interface PlotProps {
  readonly title: string;
  /** Unix ms. */
  readonly at: readonly (number | null)[];
  readonly series: readonly Series[];
  readonly format: (value: number | null) => string;
  /** The least upper end of the axis. */
  readonly atLeast?: number;
}

const HEIGHT_PX = 150;
const MIN_SPAN_SECS = 120;
const AXIS_FONT = '11px system-ui, sans-serif';

/** Lines over the last 15 minutes. All plots share one cursor. */
export function Plot({ title, at, series, format, atLeast = 1 }: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shown = useRef<HTMLSpanElement[]>([]);
  const data = [at.map((ms) => (ms ?? 0) / 1_000), ...series.map(({ values }) => values)] as uPlot.AlignedData;
  const latest = useRef({ data, format });
  latest.current = { data, format };

  useEffect(() => {
    const element = box.current!;
    const colourOf = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
    const axis = {
      stroke: colourOf('muted'),
      font: AXIS_FONT,
      grid: { stroke: colourOf('grid'), width: 1 },
      ticks: { show: false },
    };
    const say = (self: uPlot) => {
      const { data: now, format: as } = latest.current;
      const index = self.cursor.idx ?? now[0].length - 1;
      for (const [i, span] of shown.current.entries()) span.textContent = as(now[i + 1]?.[index] ?? null);
    };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT_PX,
        padding: [10, 26, 0, 0],
        legend: { show: false },
        cursor: { sync: { key: 'time' }, y: false, points: { size: 6 } },
        scales: {
          x: { range: (_self, min, max) => spanOf(min, max) },
          y: { range: (_self, _min, max) => [0, Math.max(atLeast, (max || 0) * 1.1)] },
        },
        axes: [
          {
            ...axis,
            size: 24,
            values: (_self, splits) => splits.map((secs) => timeOf(secs, splits[1]! - splits[0]! < 60)),
          },
          {
            ...axis,
            size: (_self, labels) => axisPx(labels ?? [], (label) => textPx(label, AXIS_FONT)),
            values: (_self, splits) => splits.map((value) => latest.current.format(value)),
          },
        ],
        series: [
          {},
          ...series.map(({ label, colour, dash }) => ({
            label,
            stroke: colourOf(colour),
            width: 1.5,
            points: { show: false },
            ...(dash === undefined ? {} : { dash: [...dash] }),
          })),
        ],
        hooks: { setCursor: [say], setData: [say] },
      },
      latest.current.data,
      element,
    );
    plot.current = made;
    say(made);
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT_PX }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
    };
    // The colours are those of the theme.
  }, [theme.value]);

  useEffect(() => plot.current?.setData(data));

  return html`<figure class="plot">
    <figcaption>
      <h3>${title}</h3>
      ${series.map(
        ({ label, colour, dash }, i) =>
          html`<span class="series">
            <i class=${dash === undefined ? 'line' : 'line is-dashed'} style=${{ borderColor: `var(--${colour})` }}></i
            >${label}
            <b ref=${(span: HTMLSpanElement | null) => span && (shown.current[i] = span)}></b>
          </span>`,
      )}
    </figcaption>
    <div ref=${box} class="canvas" role="img" aria-label=${`${title}, last 15 minutes`}></div>
  </figure>`;
}

/** From the first point on, 15 minutes at most. */
function spanOf(first: number, last: number): [number, number] {
  const to = last || Date.now() / 1_000;
  return [Math.min(first || to, to - MIN_SPAN_SECS), to];
}

const timeOf = (secs: number, hasSeconds: boolean): string => timeOfDay(secs * 1_000).slice(0, hasSeconds ? 8 : 5);
