// The workloads: RL rollouts of several kinds, synthetic, the same for the same seed.
import { drawsFor, tokens, trajectory } from './agent-plans.ts';
import { streams } from './streams.ts';
import { TraceBuilder, type FleetEvent, type Session, type Trace, type TurnPlan } from './workload.ts';

/** Single turn, 160 prompts with 16 samples each. Long tail, cut at 16k tokens; samples of a prompt have like lengths. */
function grpo(seed: number): Trace {
  const draws = drawsFor('grpo', seed);
  const build = new TraceBuilder();
  const sessions: Session[] = [];
  for (let group = 0; group < 160; group++) {
    const prefix = [build.segment(`p${group}`, tokens(draws.logNormal(700, 0.6), 64, 4000))];
    const groupMean = draws.logNormal(3200, 0.75);
    for (let sample = 0; sample < 16; sample++) {
      const output = tokens(groupMean * Math.exp(draws.normal(-0.1, 0.45)), 32, 16_384);
      const startSeconds = draws.uniform(0, 0.5);
      sessions.push(
        build.session({ id: `g${group}.${sample}`, group: `g${group}`, prefix, startSeconds }, [[0, output, 0]]),
      );
    }
  }
  return { name: 'grpo', sessions, events: [] };
}

/** Agents with tools: 8 trajectories per task, 3 to 28 turns, contexts up to 32k tokens, started 4 ms apart. */
function agents(name: string, seed: number, tasks: number, events: readonly FleetEvent[] = []): Trace {
  const draws = drawsFor(name, seed);
  const build = new TraceBuilder();
  const system = build.segment('sys', 1500);
  const plans: { id: string; group: string; prefix: Session['prefix']; turns: TurnPlan[] }[] = [];
  for (let group = 0; group < tasks; group++) {
    const taskTokens = Math.trunc(draws.logNormal(1800, 0.5));
    const meanTurns = draws.logNormal(11, 0.5);
    const prefix = [system, build.segment(`task${group}`, taskTokens)];
    for (let sample = 0; sample < 8; sample++) {
      const turns = trajectory(draws, system.tokens + taskTokens, meanTurns);
      plans.push({ id: `a${group}.${sample}`, group: `a${group}`, prefix, turns });
    }
  }
  const sessions = draws
    .shuffled(plans)
    .map((plan, place) => ({ ...plan, startSeconds: place * 0.004 }))
    .filter((plan) => plan.turns.length > 0)
    .map(({ turns, ...start }) => build.session(start, turns));
  return { name, sessions, events };
}

/** Open loop, 56 sessions per second: six agents whose 6k to 10k tokens of tool schemas are shared, 1 to 3 turns. */
function tools(seed: number): Trace {
  const draws = drawsFor('tools', seed);
  const build = new TraceBuilder();
  const schemas = Array.from({ length: 6 }, (_, agent) => [
    build.segment(`sys${agent}`, Math.trunc(draws.uniform(6000, 10_000))),
  ]);
  const popularity = schemas.map((_, agent) => 1 / (agent + 1) ** 1.1);
  const sessions: Session[] = [];
  let startSeconds = 0;
  for (let i = 0; i < 5000; i++) {
    startSeconds += draws.exponential(56);
    const prefix = schemas[draws.weighted(popularity)]!;
    const turns = Array.from({ length: draws.pick([1, 1, 2, 3]) }, (): TurnPlan => [
      Math.trunc(draws.logNormal(400, 0.7)),
      tokens(draws.logNormal(160, 0.7), 10, 1500),
      Math.max(0.1, draws.logNormal(1.5, 0.8)),
    ]);
    sessions.push(build.session({ id: `t${i}`, group: `t${i}`, prefix, startSeconds }, turns));
  }
  return { name: 'tools', sessions, events: [] };
}

const failureEvents: readonly FleetEvent[] = [
  { atSeconds: 60, kind: 'fail', engine: 3 },
  { atSeconds: 105, kind: 'up', engine: 3 },
];

/** All engines stop at 60 s; the first continues after 3 s with new weights, the others one per second after it. */
const swapEvents: readonly FleetEvent[] = [
  { atSeconds: 60, kind: 'pause' },
  ...Array.from({ length: 64 }, (_, engine): FleetEvent => ({ atSeconds: 63 + engine, kind: 'resume', engine })),
];

/** Traces by name, made from a seed. */
export const traces: Readonly<Record<string, (seed: number) => Trace>> = {
  grpo,
  agent: (seed) => agents('agent', seed, 96),
  tools,
  failure: (seed) => agents('failure', seed, 60, failureEvents),
  swap: (seed) => agents('swap', seed, 60, swapEvents),
  ...streams,
};
