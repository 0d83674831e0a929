// The input of both sides: one batch of agents on a small fleet with the same load as the large one of bench/policies.
import type { PolicyName } from '../../router/src/config/options/policy-names.ts';
import { seededRandom } from '../../router/src/kit/rng.ts';
import { defaultEngine, type EngineOptions } from '../policies/engine-options.ts';
import { traces } from '../policies/traces.ts';
import type { Session, Trace } from '../policies/workload.ts';

/** A policy and its state before the batch. */
export interface Contender {
  readonly name: string;
  readonly policy: PolicyName;
  /** An earlier batch ran, and the router was restarted since then. */
  readonly hasHistory: boolean;
}

/** Named as in bench/policies. */
export const contenders: readonly Contender[] = [
  ...(['least_inflight', 'consistent_hash', 'sticky_least_loaded', 'cache_aware'] as const).map((policy) => ({
    name: policy,
    policy,
    hasHistory: false,
  })),
  { name: 'rollout_first', policy: 'rollout', hasHistory: false },
  { name: 'rollout', policy: 'rollout', hasHistory: true },
];

export const tasks = 12;
export const engineCount = 4;
/** Real seconds per simulated second. */
export const timeScale = 1 / 4;
/** The KV memory that the sessions need on average, as a share of the fleet's. */
const demand = 2;
/** The agent trace has 96 sessions per engine. Here each one counts for this many of those. */
export const weight = 4;
/** A seed with a short batch and stable virtual makespans that differ: otherwise no order could be checked. */
export const seed = 4;

export interface Scene {
  readonly trace: Trace;
  /** Times in simulated seconds. */
  readonly engine: EngineOptions;
}

function meanContext({ turns }: Session): number {
  return turns.reduce((sum, turn) => sum + turn.promptTokens + turn.outputTokens / 2, 0) / turns.length;
}

/** @param maxTurns the longest sessions are cut to this */
export function makeScene(maxTurns: number): Scene {
  const groups = new Set(Array.from({ length: tasks }, (_, task) => `a${task}`));
  const trace = traces['agent']!(seed);
  const sessions = trace.sessions
    .filter(({ group }) => groups.has(group))
    .map((session, place) => ({
      ...session,
      startSeconds: place * 0.004,
      turns: session.turns.slice(0, maxTurns),
    }));
  const wanted = sessions.reduce((sum, session) => sum + meanContext(session), 0);
  return {
    trace: { ...trace, sessions },
    engine: {
      ...defaultEngine,
      kvTokens: Math.round(wanted / engineCount / demand / 1000) * 1000,
      sequenceSeconds: defaultEngine.sequenceSeconds * weight,
      kvTokenSeconds: defaultEngine.kvTokenSeconds * weight,
      prefillSeconds: defaultEngine.prefillSeconds * weight,
      prefillPositionSeconds: defaultEngine.prefillPositionSeconds * weight,
    },
  };
}

/** Seconds that timers and sockets may add to a turn. */
const lateness = 0.06;

/**
 * The scene on a clock with `timeScale`, as the router over sockets sees it: its policies have constants in seconds.
 * `variant` 0 is the batch as it is; the others have random delays, as real clients.
 */
export function scaled({ trace, engine }: Scene, variant: number): Scene {
  const random = seededRandom(variant);
  const late = (): number => (variant === 0 ? 0 : lateness * random());
  const sessions = trace.sessions.map((session) => ({
    ...session,
    startSeconds: session.startSeconds * timeScale,
    turns: session.turns.map((turn) => ({ ...turn, delaySeconds: (turn.delaySeconds + late()) * timeScale })),
  }));
  return {
    trace: { ...trace, sessions },
    engine: {
      ...engine,
      stepSeconds: engine.stepSeconds * timeScale,
      sequenceSeconds: engine.sequenceSeconds * timeScale,
      kvTokenSeconds: engine.kvTokenSeconds * timeScale,
      prefillSeconds: engine.prefillSeconds * timeScale,
      prefillPositionSeconds: engine.prefillPositionSeconds * timeScale,
    },
  };
}
