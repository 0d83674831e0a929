import { html } from 'htm/preact';
import type { WorkerRow } from '../../../router/src/admin/dashboard/protocol.ts';
import { state } from '../feed/connection.ts';
import { UNKNOWN, clock, count, counted, duration, percent, rate, shortUrl } from '../format.ts';
import { Details } from '../parts/details.ts';
import { type Fact, Facts } from '../parts/facts.ts';
import { StateBadge, reasonWords } from '../parts/worker-state.ts';
import { act } from '../shell/confirm.ts';
import type { Slowness } from './slow-workers.ts';

interface WorkerDetailsProps {
  readonly row: WorkerRow;
  readonly slowness?: Slowness;
  readonly onClose: () => void;
}

/** All that is known of a worker, and what can be done to it. */
export function WorkerDetails({ row, slowness, onClose }: WorkerDetailsProps) {
  const now = state.rates.of(row.id);
  const { swap } = row;
  const facts: readonly Fact[] = [
    ['Role', row.role],
    ['Engine', row.engine === null ? UNKNOWN : `${row.engine} ${row.engine_version ?? ''}`],
    ['Models', row.models === null ? UNKNOWN : row.models.join(', ') || 'none listed'],
    ['Weights', swap?.snapshot ?? row.weight_version ?? UNKNOWN],
    ['In flight', count(row.in_flight)],
    ['At the engine, all clients', count(row.engine_requests)],
    ['Queued at the engine', count(row.engine_waiting)],
    [
      'KV cache in use',
      row.kv_tokens === null ? percent(row.kv_use) : `${percent(row.kv_use)} of ${count(row.kv_tokens)} tokens`,
    ],
    ['Sessions', count(row.sessions)],
    ['First token, last minute', duration(row.first_token_secs)],
    ['Token gap, last minute', duration(row.token_gap_secs)],
    ['Response, last minute', duration(row.response_secs)],
    ['Output tokens per second', rate(now.outputPerSec)],
    ['Cache hits, last 30 s', percent(now.hitRate)],
    ['Responses per second', rate(now.responsesPerSec)],
    ['Responses / failures', `${count(row.responses)} / ${count(row.failures)}`],
    ['Circuit breaker', row.breaker.replace('_', '-')],
    ['Connections', count(row.connections)],
    ['Added', clock(row.added_at)],
  ];
  return html`<${Details} label=${`Worker ${row.url}`} title=${shortUrl(row.url)} onClose=${onClose}>
    <p><${StateBadge} row=${row} isSlow=${slowness !== undefined} /></p>
    ${slowness && html`<p class="why">${slowness.text}</p>`}
    ${row.reasons.map((reason) => html`<p class="why">${reasonWords[reason]}</p>`)}
    ${row.stalled && html`<p class="why">The worker has open streams and has sent nothing on any of them for 30 s.</p>`}
    ${row.problem !== null && html`<p class="why">Last health check: ${row.problem}</p>`}
    ${
      swap !== null &&
      swap.stage !== 'done' &&
      html`<p class="why">
        Weight swap to ${swap.target}: ${swap.stage}${swap.error === null ? '' : `, ${swap.error}`}
      </p>`
    }
    <${Actions} row=${row} />
    <${Facts} facts=${facts} />
  <//>`;
}

function Actions({ row }: { readonly row: WorkerRow }) {
  const name = shortUrl(row.url);
  const path = `workers/${row.id}`;
  const isDraining = row.reasons.includes('draining');
  const inFlight =
    row.in_flight === 0
      ? 'No request is in flight at this worker.'
      : `The ${counted(row.in_flight, 'request')} in flight at this worker may finish.`;
  const drain = () =>
    act(
      {
        title: `Drain ${name}?`,
        text: `The worker gets no new requests until you end the drain. It stays registered. ${inFlight}`,
        action: 'Drain',
      },
      `${name} is draining`,
      'POST',
      `${path}/drain`,
      { state: 'on' },
    );
  const undrain = () =>
    act(
      {
        title: `End the drain of ${name}?`,
        text: 'The worker gets new requests again, unless there is another reason why it does not serve.',
        action: 'End drain',
      },
      `${name} gets requests again`,
      'POST',
      `${path}/drain`,
      { state: 'off' },
    );
  const quarantine = () =>
    act(
      {
        title: `Quarantine ${name}?`,
        text: `The engine gets no new requests until it has passed its health checks and the check of its weights again. ${inFlight}`,
        action: 'Quarantine',
      },
      `${name} is quarantined until it passes its checks`,
      'POST',
      `${path}/quarantine`,
      {},
    );
  const reset = () =>
    act(
      {
        title: `Reset the breaker of ${name}?`,
        text: 'The breaker closes, and its count of failures is reset. New failures open it again.',
        action: 'Reset breaker',
      },
      `The breaker of ${name} is reset`,
      'POST',
      `${path}/breaker`,
      { state: 'auto' },
    );
  const remove = () =>
    act(
      {
        title: `Remove ${name}?`,
        text: `The worker is unregistered. ${inFlight} To use it again, you must add it again.`,
        action: 'Remove',
        isDangerous: true,
      },
      `${name} is removed`,
      'POST',
      `remove_worker?url=${encodeURIComponent(row.url)}`,
    );
  return html`<div class="buttons actions">
    ${
      isDraining
        ? html`<button type="button" onClick=${undrain}>End drain</button>`
        : html`<button type="button" onClick=${drain}>Drain</button>`
    }
    <button type="button" onClick=${quarantine}>Quarantine</button>
    <button type="button" onClick=${reset}>Reset breaker</button>
    <button type="button" class="danger" onClick=${remove}>Remove</button>
  </div>`;
}
