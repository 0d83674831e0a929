import { html } from 'htm/preact';
import { type Connection, connection, key, connect, state } from '../feed/connection.ts';
import { hitRateOf } from '../feed/rates.ts';
import { clock, count, counted, duration, percent, rate } from '../format.ts';
import type { View } from '../views/views.ts';
import { showKeys } from './keyboard.ts';
import { hrefOf } from './route.ts';
import { switchTheme, theme } from './theme.ts';

const words: Readonly<Record<Connection, string>> = {
  connecting: '◌ connecting',
  connected: '● connected',
  lost: '▲ connection lost, retrying',
  refused: '✕ not authorized',
};

export function Header({ views, current }: { readonly views: readonly View[]; readonly current: string }) {
  const about = state.about.value;
  const isOld = connection.value === 'lost' && state.at > 0;
  return html`<header class="top">
    <div class="brand">
      <a class="name" href=${hrefOf()}>turnout</a>
      <span class="about">${about && `${about.version} · ${about.policies.join(', ')}`}</span>
      <span class=${`connection is-${connection.value}`} role="status"
        >${words[connection.value]}${isOld ? ` · as of ${clock(state.at)}` : ''}</span
      >
      <span class="tools">
        ${key.value !== '' && html`<button type="button" onClick=${signOut}>Sign out</button>`}
        <button type="button" onClick=${showKeys} aria-label="Keys" title="Keys (?)">?</button>
        <button
          type="button"
          onClick=${switchTheme}
          aria-label=${theme.value === 'dark' ? 'Light colours' : 'Dark colours'}
          title="Light or dark (t)"
        >
          ${theme.value === 'dark' ? '☀' : '☾'}
        </button>
      </span>
    </div>
    <nav class="tabs" aria-label="Views">
      ${views.map(
        ({ id, title }, i) =>
          html`<a href=${hrefOf(id)} aria-current=${id === current ? 'page' : undefined}
            ><kbd>${i + 1}</kbd> ${title}</a
          >`,
      )}
    </nav>
    <${TotalsStrip} />
  </header>`;
}

function signOut(): void {
  key.value = '';
  void connect();
}

type Fact = readonly [label: string, value: string, detail: string, tone?: string];

/** @param otherwise what is written while no request waits */
function waitFact(phase: 'queued' | 'held', otherwise: string): Fact {
  const rows = state.totals.value.waits.filter((row) => row.phase === phase);
  if (rows.length === 0) return [phase, '0', otherwise];
  const number = rows.reduce((sum, row) => sum + row.count, 0);
  const reasons = rows.map((row) => `${row.count} ${row.reason}`).join(', ');
  // The longest wait comes first.
  return [phase, count(number), `oldest ${duration(rows[0]!.oldest.waiting_secs)}, ${reasons}`, 'is-warn'];
}

function TotalsStrip() {
  state.follow();
  const recent = state.recent.bind(state);
  const [queued, held] = [waitFact('queued', 'for admission'), waitFact('held', 'for a worker')];
  const workers = [...state.workers.values()];
  const serving = workers.filter(({ reasons }) => reasons.length === 0).length;
  const hitRate = hitRateOf(recent('cached_tokens'), recent('cacheable_prompt_tokens'));
  const failed = recent('failed') ?? 0;
  const facts: readonly Fact[] = [
    ['workers', `${serving} / ${workers.length}`, 'serving / all', serving < workers.length ? 'is-warn' : ''],
    ['requests/s', rate(recent('finished')), `${rate(failed)} failed/s`, failed > 0 ? 'is-bad' : ''],
    ['output tokens/s', rate(recent('output_tokens')), 'as engines report'],
    ['first token', duration(recent('first_token_p50')), `p95 ${duration(recent('first_token_p95'))}`],
    ['response', duration(recent('response_p50')), `p95 ${duration(recent('response_p95'))}`],
    ['cache hits', percent(hitRate), hitRate === null ? 'not reported' : 'of prompt tokens'],
    ['in flight', count(state.newest('in_flight')), counted(state.totals.value.sessions, 'session')],
    queued,
    held,
  ];
  return html`<dl class="totals" aria-label="Totals">
    ${facts.map(
      ([label, value, detail, tone = '']) =>
        html`<div class=${tone}>
          <dt>${label}</dt>
          <dd class="value">${value}</dd>
          <dd class="detail">${detail}</dd>
        </div>`,
    )}
  </dl>`;
}
