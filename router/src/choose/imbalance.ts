import type { Config } from '../config/options.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { Worker } from '../fleet/worker.ts';

/**
 * Whether load alone has to decide: the most loaded worker has more than `balanceAbsThreshold` exchanges more than the
 * least loaded one, and more than `balanceRelThreshold` times as many (the rule of SGLang's router).
 */
export function isImbalanced(fleet: Fleet, workers: readonly Worker[], options: Config): boolean {
  let most = 0;
  let least = Infinity;
  for (const worker of workers) {
    const load = fleet.load(worker);
    if (load > most) most = load;
    if (load < least) least = load;
  }
  return most - least > options.balanceAbsThreshold && most > options.balanceRelThreshold * least;
}
