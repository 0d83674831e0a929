// The scene on the virtual clock of bench/policies, with the shipped policies.
import { shippedPolicy } from '../policies/shipped.ts';
import { Simulation } from '../policies/simulation.ts';
import { type Contender, type Scene, engineCount, scaled, seed, timeScale } from './scene.ts';

export interface Outcome {
  /** Simulated seconds. */
  readonly makespan: number;
  /** Share of prompt tokens found in the engines' prefix caches. */
  readonly hitShare: number;
  readonly preemptions: number;
}

/** @param workerUrls as over sockets, because rings and ties hash them */
export function runVirtual(
  scene: Scene,
  contender: Contender,
  workerUrls: readonly string[],
  variant: number,
): Outcome {
  const { trace, engine } = scaled(scene, variant);
  const { policy, hasHistory } = contender;
  const simulation = new Simulation({
    trace,
    engine,
    engineCount,
    seed,
    policy: shippedPolicy(policy, { hasEndSignals: true, hasHistory, workerUrls }),
    earlierBatch: () => trace,
  });
  const { makespan, hitShare, preemptions } = simulation.run();
  return { makespan: makespan / timeScale, hitShare, preemptions };
}
