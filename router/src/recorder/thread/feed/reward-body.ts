import * as z from 'zod';
import { checkJson, namedValues } from '../../../config/check-input.ts';
import { type TrajectoryStore, turnsOf } from '../store/store.ts';
import type { Trajectory } from '../export/trajectory.ts';
import { noProgress, walk } from '../export/walk.ts';
import type { SessionName } from '../../shared/turn.ts';
import type { TurnWriter } from '../store/writer.ts';
import { turnsBefore } from './member-lines.ts';
import type { RewardsChange } from './rewards.ts';
import { boundsOf } from './rows.ts';

const numbers = z.array(z.number());

/** The body of `POST /trajectories/{session}/reward`. */
const body = z.strictObject({
  id: z.string().max(256).default(''),
  reward: z.number().nullable().optional(),
  rewards: namedValues(z.string().min(1).max(256), z.number()).optional(),
  turn_rewards: z.union([numbers, namedValues(z.string(), z.number())]).optional(),
  token_rewards: z.union([numbers, namedValues(z.string(), numbers)]).optional(),
});

/** Reads a reward, and finds the turns that it names by their order. @returns a text: what is wrong. Rejects while the store lacks turns. */
export async function readReward(
  bytes: Uint8Array,
  name: SessionName,
  writer: TurnWriter,
): Promise<RewardsChange | string> {
  const { data, problem } = checkJson(body, Buffer.from(bytes).toString());
  if (problem !== null) return problem;
  const { id, reward, rewards, turn_rewards: ofTurns, token_rewards: ofTokens } = data;
  // null removes the reward.
  if (reward === undefined && (rewards ?? ofTurns ?? ofTokens) === undefined)
    return 'The body has no reward: give "reward", "rewards", "turn_rewards" or "token_rewards".';
  const change = { id, ...(reward === undefined ? {} : { reward }), ...(rewards === undefined ? {} : { rewards }) };
  if (ofTurns === undefined && ofTokens === undefined) return change;
  const { store } = writer;
  writer.requireAll(name);
  const own = await turnsOf(store, name.session, name.tenant);
  // Its trajectories have the turns of other sessions that it continues.
  const { before } = await turnsBefore(store, own);
  const known = new Set([...own, ...before].map((turn) => turn.id));
  const newest = Array.isArray(ofTurns) || Array.isArray(ofTokens) ? await newestOf(store, name) : null;
  if (Array.isArray(ofTurns) && ofTurns.length !== newest?.turns.length)
    return `"turn_rewards" has ${ofTurns.length} numbers, and the newest trajectory has ${newest?.turns.length ?? 0} turns.`;
  const turns = Array.isArray(ofTurns)
    ? Object.fromEntries(ofTurns.map((each, i) => [newest!.turns[i]!.id, each]))
    : (ofTurns ?? {});
  const tokens = Array.isArray(ofTokens) ? splitByTurn(ofTokens, newest) : (ofTokens ?? {});
  if (typeof tokens === 'string') return tokens;
  const missing = [...Object.keys(turns), ...Object.keys(tokens)].find((turn) => !known.has(turn));
  if (missing !== undefined) return noTurn(missing);
  for (const [turn, given] of Array.isArray(ofTokens) ? [] : Object.entries(tokens)) {
    const mask = (await store.get(turn, false))?.mask;
    if (mask === undefined) return noTurn(turn);
    const sampled = countOnes(mask);
    if (given.length !== sampled)
      return `"token_rewards" has ${given.length} numbers for the turn '${turn}', which has ${sampled} sampled tokens.`;
  }
  return { ...change, details: { turns, tokens } };
}

const noTurn = (id: string): string => `The session has no turn '${id}'.`;

const countOnes = (mask: Uint8Array): number => mask.reduce((count, bit) => count + bit, 0);

/** The trajectory that ends with the newest turn; null: the session has none. */
async function newestOf(store: TrajectoryStore, { session, tenant }: SessionName): Promise<Trajectory | null> {
  let newest: Trajectory | null = null;
  for await (const trajectory of walk(store, { session, tenant }, noProgress(), false))
    if (newest === null || trajectory.id > newest.id) newest = trajectory;
  return newest;
}

/** One number for each sampled token of a trajectory, by turn. */
function splitByTurn(given: readonly number[], trajectory: Trajectory | null): Record<string, number[]> | string {
  const split: Record<string, number[]> = {};
  let at = 0;
  for (const { id, from, to } of trajectory === null ? [] : boundsOf(trajectory)) {
    const sampled = countOnes(trajectory!.mask.subarray(from, to));
    split[id] = given.slice(at, (at += sampled));
  }
  return at === given.length
    ? split
    : `"token_rewards" has ${given.length} numbers, and the newest trajectory has ${at} sampled tokens.`;
}
