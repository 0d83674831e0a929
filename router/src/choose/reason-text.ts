import type { Exchange, MoveReason } from '../exchange.ts';

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

/** As text: `new`, `home`, `moved: worker unhealthy`, `retry`, `target`, `policy`; `held` without a worker. */
export function reasonText({ why, move, placement, heldFor }: Exchange): string {
  if (placement === null) return heldFor === '' ? '' : 'held';
  return why === 'moved' && move !== null ? `moved: ${moveText(move)}` : why;
}
