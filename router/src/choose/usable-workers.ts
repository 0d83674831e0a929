import type { Exchange } from '../exchange.ts';
import type { Worker } from '../fleet/worker.ts';
import type { SlowStart } from './slow-start.ts';

const NO_WORKERS: readonly Worker[] = [];

/**
 * The workers whose role the exchange needs: all of them, unless it needs a pair. None if one of the roles has no
 * worker.
 */
export function usable({ roles }: Exchange, workers: readonly Worker[]): readonly Worker[] {
  if (roles === null) return workers;
  if (!roles.every((role) => workers.some((worker) => worker.role === role))) return NO_WORKERS;
  return workers.filter((worker) => roles.includes(worker.role));
}

/** Applies slow start to each role separately, because a pair needs a worker of both. */
export function withoutSpared(
  { roles }: Exchange,
  workers: readonly Worker[],
  slowStart: SlowStart,
): readonly Worker[] {
  if (roles === null) return slowStart.withoutSpared(workers);
  return roles.flatMap((role) => slowStart.withoutSpared(workers.filter((worker) => worker.role === role)));
}
