import type { Exchange } from '../exchange.ts';

/** What a request in flight waits for. */
export type Phase =
  /** Its body, a plugin, or the delay before a retry. */
  | 'receiving'
  /** Admission: --max-concurrent-requests, --worker-max-inflight or the rate limit. */
  | 'queued'
  /** Its policy, or capacity at a worker. */
  | 'held'
  /** The first byte of the response. */
  | 'waiting_for_first_byte'
  /** The rest of the response. */
  | 'streaming';

export function phaseOf(x: Exchange): Phase {
  if (x.waiting !== null) return x.waiting.phase;
  if (x.firstByteMs !== null) return 'streaming';
  return x.isCounted || x.audience !== null ? 'waiting_for_first_byte' : 'receiving';
}
