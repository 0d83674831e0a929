import { html } from 'htm/preact';
import { state } from '../feed/connection.ts';
import { shortUrl } from '../format.ts';

/** Colours of workers in lanes; each worker also has a number, so that colours need not differ. */
const COLOURS = 8;

/** The number of a worker in the order of the fleet, from 1 on; 0: it has left. */
export function workerNumbers(): ReadonlyMap<string, number> {
  return new Map(Array.from(state.workers.values(), ({ url }, i) => [url, i + 1]));
}

export const colourOf = (number: number): string => (number === 0 ? 'worker-gone' : `worker-${(number - 1) % COLOURS}`);

/** Numbers, colours and names of the workers, as far as they fit. */
export function WorkerLegend({ numbers }: { readonly numbers: ReadonlyMap<string, number> }) {
  const shown = [...numbers].slice(0, COLOURS);
  return html`<ul class="legend" aria-label="Workers">
    ${shown.map(([url, number]) => html`<li><i class=${`lane-bar ${colourOf(number)}`}>${number}</i>${shortUrl(url)}</li>`)}
    ${numbers.size > shown.length && html`<li>and ${numbers.size - shown.length} more</li>`}
    <li><i class="lane-bar is-wait"></i>waits</li>
    <li><span class="move" aria-hidden="true">▲</span> moved</li>
  </ul>`;
}
