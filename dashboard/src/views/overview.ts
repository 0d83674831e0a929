import { html } from 'htm/preact';
import type { HistoryField } from '../../../router/src/admin/dashboard/protocol.ts';
import { state } from '../feed/connection.ts';
import { hitRateOf } from '../feed/rates.ts';
import { count, duration, percent, rate } from '../format.ts';
import { Plot } from '../parts/plot.ts';
import { hrefOf } from '../shell/route.ts';
import { type Concern, concernsOf } from './concerns.ts';
import type { View } from './views.ts';

export const overview: View = { id: 'overview', title: 'Overview', Show };

function Show() {
  state.follow();
  const field = state.history.bind(state);
  const at = field('at');
  const prompt = field('prompt_tokens');
  const cacheable = field('cacheable_prompt_tokens');
  const hits = field('cached_tokens').map((cached, i) => hitRateOf(cached, cacheable[i]!));
  const quantiles = (median: HistoryField, high: HistoryField) => [
    { label: 'p50', colour: 'line-1', values: field(median) },
    { label: 'p95', colour: 'line-2', dash: [4, 3], values: field(high) },
  ];
  return html`<${Concerns} list=${concernsOf(state)} />
    <div class="plots">
      <${Plot}
        title="Requests/s"
        at=${at}
        format=${rate}
        series=${[
          { label: 'finished', colour: 'line-1', values: field('finished') },
          { label: 'failed', colour: 'line-3', dash: [4, 3], values: field('failed') },
        ]}
      />
      <${Plot}
        title="Tokens/s"
        at=${at}
        format=${rate}
        series=${[
          { label: 'output', colour: 'line-1', values: field('output_tokens') },
          { label: 'prompt', colour: 'line-2', dash: [4, 3], values: prompt },
        ]}
      />
      <${Plot}
        title="Time to first token"
        at=${at}
        format=${duration}
        atLeast=${0.01}
        series=${quantiles('first_token_p50', 'first_token_p95')}
      />
      <${Plot}
        title="Gap between tokens"
        at=${at}
        format=${duration}
        atLeast=${0.01}
        series=${quantiles('token_gap_p50', 'token_gap_p95')}
      />
      <${Plot}
        title="Prefix cache hits"
        at=${at}
        format=${percent}
        series=${[{ label: 'of prompt tokens', colour: 'line-1', values: hits }]}
      />
      <${Plot}
        title="Requests"
        at=${at}
        format=${count}
        series=${[
          { label: 'in flight', colour: 'line-1', values: field('in_flight') },
          { label: 'queued', colour: 'line-2', dash: [4, 3], values: field('queued') },
          { label: 'held', colour: 'line-3', dash: [1, 3], values: field('held') },
        ]}
      />
    </div>`;
}

function Concerns({ list }: { readonly list: readonly Concern[] }) {
  return html`<section class="concerns" aria-labelledby="concerns">
    <h2 id="concerns">Needs attention</h2>
    ${
      list.length === 0
        ? html`<p class="is-ok"><span aria-hidden="true">●</span> Nothing: all workers serve, and no request waits.</p>`
        : html`<ul>
            ${list.map(
              ({ id, text, detail, tone, to }) =>
                html`<li key=${id}>
                  <span class=${`state is-${tone}`}><span aria-hidden="true">${tone === 'bad' ? '✕' : '▲'}</span></span>
                  <a href=${hrefOf(...to)}>${text}</a> <span class="detail">${detail}</span>
                </li>`,
            )}
          </ul>`
    }
  </section>`;
}
