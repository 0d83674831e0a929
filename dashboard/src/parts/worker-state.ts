import { html } from 'htm/preact';
import type { WorkerRow } from '../../../router/src/admin/dashboard/protocol.ts';

/** How a state is shown: a sign and a word; the colour repeats them. */
export interface WorkerState {
  readonly word: string;
  readonly sign: string;
  readonly tone: 'ok' | 'busy' | 'warn' | 'bad';
  /** Order of concern: the worst first. */
  readonly rank: number;
}

const state = (rank: number, tone: WorkerState['tone'], sign: string, word: string): WorkerState => ({
  rank,
  tone,
  sign,
  word,
});

const states = {
  hung: state(0, 'bad', '✕', 'hung'),
  unhealthy: state(1, 'bad', '✕', 'unhealthy'),
  ejected: state(2, 'bad', '✕', 'ejected'),
  quarantined: state(3, 'bad', '✕', 'quarantined'),
  paused: state(3, 'bad', '✕', 'paused'),
  starting: state(4, 'busy', '◌', 'starting'),
  version: state(5, 'warn', '▲', 'other weights'),
  role: state(6, 'warn', '▲', 'wrong role'),
  ranks: state(7, 'busy', '◌', 'ranks unknown'),
  draining: state(8, 'busy', '◐', 'draining'),
  swapping: state(9, 'busy', '◐', 'swapping'),
  trial: state(10, 'warn', '◐', 'half-open'),
  stalled: state(11, 'warn', '▲', 'stalled'),
  slow: state(12, 'warn', '▲', 'slow'),
  serving: state(13, 'ok', '●', 'serving'),
} as const;

/** The one state that matters most. */
export function stateOf({ reasons, engine, breaker, stalled, swap }: WorkerRow, isSlow = false): WorkerState {
  if (reasons.includes('hung')) return states.hung;
  if (reasons.includes('draining')) return states.draining;
  if (reasons.includes('paused')) return states.paused;
  if (reasons.includes('unhealthy')) return engine === null ? states.starting : states.unhealthy;
  if (reasons.includes('breaker')) return breaker === 'half_open' ? states.trial : states.ejected;
  if (reasons.includes('version')) {
    if (swap === null) return states.version;
    return swap.state === 'quarantined'
      ? states.quarantined
      : swap.state === 'error'
        ? states.version
        : states.starting;
  }
  if (reasons.includes('role')) return states.role;
  if (reasons.includes('ranks')) return states.ranks;
  if (swap?.state === 'swapping' || swap?.state === 'draining') return states.swapping;
  if (breaker === 'half_open') return states.trial;
  if (stalled) return states.stalled;
  return isSlow ? states.slow : states.serving;
}

export function StateBadge({ row, isSlow = false }: { readonly row: WorkerRow; readonly isSlow?: boolean }) {
  const { tone, sign, word } = stateOf(row, isSlow);
  return html`<span class=${`state is-${tone}`}><span aria-hidden="true">${sign}</span> ${word}</span>`;
}

/** What each reason for no new requests means. */
export const reasonWords: Readonly<Record<WorkerRow['reasons'][number], string>> = {
  unhealthy: 'The worker failed its health checks, or has not passed them yet.',
  breaker: 'The circuit breaker of the worker is open: too many of its requests failed.',
  draining: 'The worker is draining: it gets no new requests and finishes those in flight.',
  role: 'The worker has the role prefill or decode in a fleet without pairs, or the role regular in a fleet with pairs.',
  version: 'The weights of the worker differ from those of the fleet, or are not known yet.',
  ranks: 'The number of its data-parallel ranks is not known yet.',
  hung: 'The engine accepts connections and makes no progress.',
  paused: 'The engine was paused when it joined, by no swap of this router. GET /swap has the command that resumes it.',
};
