// The input of both sides: agents on a small fleet with the same load as the large one of bench/policies.
import type { PolicyName } from '../../router/src/config/options/policy-names.ts';
import { seededRandom } from '../../router/src/kit/rng.ts';
import { defaultEngine, type EngineOptions } from '../policies/engine-options.ts';
import { streamOf } from '../policies/streams.ts';
import { traces } from '../policies/traces.ts';
import type { Session, Stream, Trace } from '../policies/workload.ts';

/** A policy and its state before the run. */
export interface Contender {
  readonly name: string;
  /** null: ThunderAgent in turnout's place. */
  readonly policy: PolicyName | null;
  /** An earlier batch ran, and the router was restarted since then. */
  readonly hasHistory: boolean;
}

const fresh = (policy: PolicyName): Contender => ({ name: policy, policy, hasHistory: false });

/** Named as in bench/policies. */
export const batchContenders: readonly Contender[] = [
  ...(['least_inflight', 'consistent_hash', 'sticky_least_loaded', 'cache_aware'] as const).map(fresh),
  { name: 'rollout_first', policy: 'rollout', hasHistory: false },
  { name: 'rollout', policy: 'rollout', hasHistory: true },
];

/** A stream has no history: it warms up. */
export const streamContenders: readonly Contender[] = [
  ...(['consistent_hash', 'sticky_least_loaded', 'rollout'] as const).map(fresh),
  { name: 'thunder_agent', policy: null, hasHistory: false },
];

export const tasks = 12;
export const engineCount = 4;
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
  /** Real seconds per simulated second. */
  readonly timeScale: number;
}

function heavy(kvTokens: number): EngineOptions {
  return {
    ...defaultEngine,
    kvTokens,
    sequenceSeconds: defaultEngine.sequenceSeconds * weight,
    kvTokenSeconds: defaultEngine.kvTokenSeconds * weight,
    prefillSeconds: defaultEngine.prefillSeconds * weight,
    prefillPositionSeconds: defaultEngine.prefillPositionSeconds * weight,
  };
}

function meanContext({ turns }: Session): number {
  return turns.reduce((sum, turn) => sum + turn.promptTokens + turn.outputTokens / 2, 0) / turns.length;
}

/** @param maxTurns the longest sessions are cut to this */
export function batchScene(maxTurns: number): Scene {
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
    engine: heavy(Math.round(wanted / engineCount / demand / 1000) * 1000),
    timeScale: 1 / 4,
  };
}

/** Sessions that are open at a time: in the stream-2x of bench/policies they are 656 on 8 engines with 450k. */
export const streamSlots = (656 / 8 / weight) * engineCount;

export function streamScene(seconds: number, warmUpSeconds: number): Scene {
  const trace = streamOf({ name: 'stream-2x', slots: streamSlots })(seed);
  return {
    trace: { ...trace, stream: { ...trace.stream!, seconds, warmUpSeconds } },
    engine: heavy(defaultEngine.kvTokens / weight),
    // ThunderAgent is too slow for less: its latency would count several times.
    timeScale: 1,
  };
}

/** Seconds that timers and sockets may add to a turn. */
const lateness = 0.06;

/**
 * The scene in real seconds, as the router over sockets sees it: its policies have constants in seconds. `variant` 0 is
 * the trace as it is; the others have random delays, as real clients.
 */
export function scaled({ trace, engine, timeScale: scale }: Scene, variant: number): Scene {
  const random = seededRandom(variant);
  const late = (): number => (variant === 0 ? 0 : lateness * random());
  const scaledSession = (session: Session): Session => ({
    ...session,
    startSeconds: session.startSeconds * scale,
    turns: session.turns.map((turn) => ({ ...turn, delaySeconds: (turn.delaySeconds + late()) * scale })),
  });
  const scaledStream = (stream: Stream): Stream => ({
    ...stream,
    seconds: stream.seconds * scale,
    warmUpSeconds: stream.warmUpSeconds * scale,
    weightsSeconds: stream.weightsSeconds * scale,
    clients() {
      const clients = stream.clients();
      return { ended: (session) => clients.ended(session).map(scaledSession) };
    },
  });
  return {
    timeScale: 1,
    trace: {
      ...trace,
      sessions: trace.sessions.map(scaledSession),
      ...(trace.stream === undefined ? {} : { stream: scaledStream(trace.stream) }),
    },
    engine: {
      ...engine,
      stepSeconds: engine.stepSeconds * scale,
      sequenceSeconds: engine.sequenceSeconds * scale,
      kvTokenSeconds: engine.kvTokenSeconds * scale,
      prefillSeconds: engine.prefillSeconds * scale,
      prefillPositionSeconds: engine.prefillPositionSeconds * scale,
    },
  };
}
