import type { Exchange } from '../exchange.ts';

/** What a request under way waits for. */
export type Phase =
  /** Its body, or a plugin, or the delay before a retry. */
  | 'receiving'
  /** Admission: --max-concurrent-requests, --worker-max-inflight or the rate limit. */
  | 'queued'
  /** Its policy, or room at any worker. */
  | 'held'
  /** The first byte of its worker's answer. */
  | 'waiting_for_first_byte'
  /** The rest of the answer. */
  | 'streaming';

export function phaseOf(x: Exchange): Phase {
  if (x.waiting !== null) return x.waiting.phase;
  if (x.firstByteMs > 0) return 'streaming';
  return x.isCounted || x.audience !== null ? 'waiting_for_first_byte' : 'receiving';
}
