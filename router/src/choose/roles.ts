import type { Exchange } from '../exchange.ts';
import type { Worker } from '../fleet/worker.ts';
import type { SlowStart } from './slow-start.ts';

const NOBODY: readonly Worker[] = [];

/** Those of `workers` that an exchange can use: all, or, of a fleet of pairs, those of its roles. None where a role has nobody. */
export function usable({ roles }: Exchange, workers: readonly Worker[]): readonly Worker[] {
  if (roles === null) return workers;
  if (!roles.every((role) => workers.some((worker) => worker.role === role))) return NOBODY;
  return workers.filter((worker) => roles.includes(worker.role));
}

/** Spares the workers of each role by itself: what leaves one of two halves would leave no pair. */
export function withoutSpared(
  { roles }: Exchange,
  workers: readonly Worker[],
  slowStart: SlowStart,
): readonly Worker[] {
  if (roles === null) return slowStart.withoutSpared(workers);
  return roles.flatMap((role) => slowStart.withoutSpared(workers.filter((worker) => worker.role === role)));
}
