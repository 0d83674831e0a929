// The scene on the virtual clock of bench/policies, with the shipped policies.
import { shippedPolicy } from '../policies/shipped.ts';
import { policies } from '../policies/simulated-policies.ts';
import { Simulation } from '../policies/simulation.ts';
import type { StreamMetrics } from '../policies/stream-meter.ts';
import { type Contender, type Scene, engineCount, scaled, seed } from './scene.ts';

/** Times in simulated seconds. */
export interface Outcome {
  readonly makespan: number;
  /** Share of prompt tokens found in the engines' prefix caches. */
  readonly hitShare: number;
  readonly preemptions: number;
  readonly longestHold: number;
  /** null for a batch. */
  readonly stream: StreamMetrics | null;
}

/** @param workerUrls as over sockets, because rings and ties hash them */
export function runVirtual(
  scene: Scene,
  { name, policy, hasHistory }: Contender,
  workerUrls: readonly string[],
  variant: number,
): Outcome {
  // The model of a peer has its constants in simulated seconds.
  const scale = policy === null ? 1 : scene.timeScale;
  const { trace, engine } = scaled({ ...scene, timeScale: scale }, variant);
  const simulation = new Simulation({
    trace,
    engine,
    engineCount,
    seed,
    policy: policy === null ? policies[name]! : shippedPolicy(policy, { hasEndSignals: true, hasHistory, workerUrls }),
    earlierBatch: () => trace,
  });
  const { makespan, hitShare, preemptions, longestHold, stream } = simulation.run();
  return {
    makespan: makespan / scale,
    hitShare,
    preemptions,
    longestHold: longestHold / scale,
    stream: stream === null ? null : unscaled(stream, scale),
  };
}

function unscaled(stream: StreamMetrics, scale: number): StreamMetrics {
  const { mean, p50, p95, max } = stream.sessionSeconds;
  return {
    ...stream,
    turnsPerHour: stream.turnsPerHour * scale,
    sessionsPerHour: stream.sessionsPerHour * scale,
    groupsPerHour: stream.groupsPerHour * scale,
    outputTokensPerSecond: stream.outputTokensPerSecond * scale,
    sessionSeconds: { mean: mean / scale, p50: p50 / scale, p95: p95 / scale, max: max / scale },
    oldestOpen: stream.oldestOpen / scale,
  };
}
