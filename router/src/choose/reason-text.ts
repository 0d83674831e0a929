import type { PlacedRequest, Waiting } from '../placed-request.ts';
import type { MoveReason } from '../fleet/session-move.ts';

const moveTexts: Readonly<Record<MoveReason, string>> = {
  retry: 'the worker failed the request',
  removed: 'worker removed',
  unhealthy: 'worker unhealthy',
  hung: 'worker hung',
  breaker: 'circuit breaker of the worker open',
  draining: 'worker draining',
  role: 'worker has another role',
  version: 'worker has other weights',
  paused: 'worker was found paused',
  ranks: 'data-parallel ranks of the worker unknown',
  weight_swap: 'weights of the worker being replaced',
  full: 'worker full',
  slow_start: 'worker just came back',
  model: 'worker does not serve the model',
  plugin: 'excluded by a plugin',
  cheaper: 'cheaper',
  no_room: 'KV cache of the worker full',
  cache_lost: 'worker was away and lost the KV cache',
  load: 'load of the workers',
  ring: 'hash ring changed',
  returned: 'first worker is back',
  prompt: 'placed by its prompt',
  policy: 'the policy',
};

export const isMoveReason = (name: unknown): boolean => typeof name === 'string' && Object.hasOwn(moveTexts, name);

/** Why a session moved, as text: `cheaper by 0.4 s`. */
export function moveText({ reason, savedSecs }: { reason: MoveReason; savedSecs: number }): string {
  return reason === 'cheaper' ? `cheaper by ${savedSecs.toPrecision(2)} s` : moveTexts[reason];
}

interface WaitText {
  readonly waitsFor: string;
  readonly because: string;
  /** What follows at the maximum of the wait. */
  readonly atLimit: string;
}

/** By reason of a wait. Policies may have further ones. */
const waitTexts: Readonly<Record<string, WaitText>> = {
  kv_cache_full: {
    waitsFor: 'KV cache space',
    because: 'the contexts of the open sessions exceed what the engines hold',
    atLimit: 'sent anyway',
  },
  workers_full: {
    waitsFor: 'capacity at a worker',
    because: 'every worker has --worker-max-inflight requests',
    atLimit: 'refused',
  },
  weight_swap: {
    waitsFor: 'the end of a weight swap',
    because: 'the weights of its worker are being replaced',
    atLimit: 'refused',
  },
  concurrency: {
    waitsFor: 'the end of other requests',
    because: '--max-concurrent-requests, or --worker-max-inflight of all workers, is reached',
    atLimit: 'refused',
  },
  rate: { waitsFor: 'the rate limit', because: '--rate-limit-tokens-per-second is reached', atLimit: 'refused' },
};

const waitTextOf = (reason: string): WaitText =>
  Object.hasOwn(waitTexts, reason)
    ? waitTexts[reason]!
    : { waitsFor: `the policy (${reason})`, because: 'it holds the request', atLimit: 'placed or refused' };

/** What a request that is queued or held waits for: `KV cache space: the contexts of …; sent anyway after 60 s`. */
export function waitText({ reason, limitMs }: Waiting): string {
  const { waitsFor, because, atLimit } = waitTextOf(reason);
  return `${waitsFor}: ${because}; ${atLimit} after ${Math.round(limitMs / 100) / 10} s`;
}

/** What a request was held for: `KV cache space`. */
export const heldForText = (reason: string): string => waitTextOf(reason).waitsFor;

/** As text: `new`, `home`, `moved: worker unhealthy`, `retry`, `target`, `policy`; `held` without a worker. */
export function reasonText({ why, move, placement, heldFor }: PlacedRequest): string {
  if (placement === null) return heldFor === null ? '' : 'held';
  return why === 'moved' && move !== null ? `moved: ${moveText(move)}` : why;
}
