import { html } from 'htm/preact';
import { useEffect, useState } from 'preact/hooks';
import type { Explanation } from '../../../router/src/admin/explain.ts';
import { call } from '../feed/connection.ts';
import { UNKNOWN, clock, duration, shortUrl } from '../format.ts';

type Turn = Explanation['exchanges'][number];
type Candidate = NonNullable<Turn['candidates']>[number];

/** The response of `GET /explain`, requested again when `version` changes. */
export function useExplanation(
  id: string,
  version: number | string,
): { readonly told: Explanation | null; readonly problem: string } {
  const [answer, setAnswer] = useState<{ id: string; told: Explanation | null; problem: string } | null>(null);
  useEffect(() => {
    let isWanted = true;
    const show = (told: Explanation | null, problem: string) => isWanted && setAnswer({ id, told, problem });
    call('GET', `explain?id=${encodeURIComponent(id)}`).then(
      (told) => show(told as Explanation, ''),
      (error: unknown) => show(null, (error as Error).message),
    );
    return () => {
      isWanted = false;
    };
  }, [id, version]);
  // The last answer may be that of another id.
  return answer?.id === id ? answer : { told: null, problem: '' };
}

/** Turns of a session, or one exchange, with what was decided and why. */
export function Turns({ told, isOpen }: { readonly told: Explanation; readonly isOpen: (turn: Turn) => boolean }) {
  const names = termNames([...told.exchanges, ...told.in_flight].flatMap(({ candidates }) => candidates ?? []));
  return html`<div class="turns">
    ${names.includes('total') && html`<${CostLegend} names=${names} />`}
    ${told.in_flight.map(
      (turn) =>
        html`<details class="turn" key=${turn.id} open>
          <summary><b>${turn.id}</b> <span class="state is-busy">◐ in flight for ${turn.age_secs} s</span></summary>
          <${Story} sentences=${turn.story} />
          <${Candidates} list=${turn.candidates} chosen=${turn.worker} />
        </details>`,
    )}
    ${told.exchanges.toReversed().map(
      (turn) =>
        html`<details class="turn" key=${turn.id} open=${isOpen(turn)}>
          <summary>
            <b>${turn.id}</b>${' '}${signOf(turn)}
            <span class="muted">
              ${` ${clock(turn.at)} · ${duration(turn.ms / 1000)} · ${turn.reason ?? UNKNOWN}`}
            </span>
          </summary>
          <${Story} sentences=${turn.story} />
          <${Candidates} list=${turn.candidates} chosen=${turn.worker} />
        </details>`,
    )}
    <p class="muted">
      ${
        told.record.since === null
          ? 'The router keeps no finished requests: --explain-buffer-bytes is 0.'
          : `The router keeps the last ${told.record.exchanges} requests, since ${clock(told.record.since)}.`
      }
    </p>
  </div>`;
}

function signOf({ outcome, reason, attempts }: Turn) {
  if (outcome === 'cut' || outcome === 'refused')
    return html`<span class="state is-bad">✕ ${outcome === 'cut' ? 'truncated' : 'refused'}</span>`;
  if (reason?.startsWith('moved') === true) return html`<span class="state is-warn">▲ moved</span>`;
  return attempts > 1 && html`<span class="state is-warn">▲ ${attempts} attempts</span>`;
}

const Story = ({ sentences }: { readonly sentences: readonly string[] }) =>
  html`<ul class="story">
    ${sentences.map((sentence) => html`<li>${sentence}</li>`)}
  </ul>`;

const termNames = (list: readonly Candidate[]): string[] => [
  ...new Set(list.flatMap(({ terms }) => Object.keys(terms))),
];

const CostLegend = ({ names }: { readonly names: readonly string[] }) =>
  html`<ul class="legend" aria-label="Terms of the estimated cost, in seconds">
    <li>Cost in seconds:</li>
    ${names.filter((name) => name !== 'total').map((name, i) => html`<li><i class=${`bar term-${i}`}></i>${name}</li>`)}
  </ul>`;

/** Terms that add up to a cost are shown as parts of a bar, others as numbers. */
function Candidates({ list, chosen }: { readonly list: readonly Candidate[] | null; readonly chosen: string | null }) {
  if (list === null || list.length === 0) return null;
  const sorted = list.toSorted((a, b) => Number(b.worker === chosen) - Number(a.worker === chosen));
  const most = Math.max(...list.map(({ terms }) => terms['total'] ?? 0));
  const names = termNames(list).filter((name) => name !== 'total');
  return html`<div class="candidates">
    <table aria-label="Candidates">
      <thead>
        <tr>
          <th scope="col">Candidate</th>
          ${most > 0 ? html`<th scope="col">Cost</th>` : names.map((name) => html`<th scope="col" class="number">${name}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${sorted.map(
          ({ worker, terms }) =>
            html`<tr key=${worker}>
              <td title=${worker}>
                ${shortUrl(worker)}${worker === chosen && html`<span class="state is-ok"> ● chosen</span>`}
              </td>
              ${
                most > 0
                  ? html`<td>
                      <${Cost} names=${names} terms=${terms} most=${most} />
                    </td>`
                  : names.map((name) => html`<td class="number">${numberOf(terms[name])}</td>`)
              }
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

function Cost({
  names,
  terms,
  most,
}: {
  readonly names: readonly string[];
  readonly terms: Candidate['terms'];
  readonly most: number;
}) {
  const text = names.map((name) => `${name} ${numberOf(terms[name])}`).join(', ');
  return html`<div class="cost" title=${text}>
    <span class="cost-bar" aria-hidden="true">
      ${names.map(
        (name, i) => html`<i class=${`term-${i}`} style=${{ width: `${(100 * (terms[name] ?? 0)) / most}%` }}></i>`,
      )}
    </span>
    <b>${numberOf(terms['total'])}</b>
  </div>`;
}

const numberOf = (value: number | undefined): string => {
  if (value === undefined) return UNKNOWN;
  return Number.isInteger(value) ? String(value) : value.toPrecision(3);
};
