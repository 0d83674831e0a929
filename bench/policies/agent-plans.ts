// Sessions of agents with tools, as the batches and the streams have them.
import { hash32 } from '../../router/src/kit/hash.ts';
import { seededRandom } from '../../router/src/kit/rng.ts';
import { Draws } from './draws.ts';
import type { TurnPlan } from './workload.ts';

const maxContextTokens = 32_000;
const mostTurns = 28;

/** A whole number of tokens within bounds. */
export function tokens(value: number, least: number, most = Infinity): number {
  return Math.trunc(Math.max(least, Math.min(most, value)));
}

export function drawsFor(name: string, seed: number): Draws {
  return new Draws(seededRandom(hash32(`${name} ${seed}`)));
}

/** Seconds of a tool call: 4 on average, 60 at most. */
export function toolSeconds(draws: Draws): number {
  return Math.max(0.2, Math.min(60, draws.logNormal(4, 1)));
}

/** 3 to 28 turns, which are about `meanTurns`. A context ends below 32k tokens. */
export function trajectory(
  draws: Draws,
  promptTokens: number,
  meanTurns: number,
  delay: (draws: Draws) => number = toolSeconds,
): TurnPlan[] {
  const count = Math.trunc(Math.max(3, Math.min(mostTurns, draws.normal(meanTurns, 3))));
  const turns: TurnPlan[] = [];
  let context = promptTokens;
  for (let turn = 0; turn < count; turn++) {
    const newTokens = turn === 0 ? 0 : tokens(draws.logNormal(900, 0.9), 30, 6000);
    const output = tokens(draws.logNormal(320, 0.8), 20, 3000);
    context += newTokens + output;
    if (context > maxContextTokens) break;
    turns.push([newTokens, output, delay(draws)]);
  }
  return turns;
}
