import type { RewardChange } from '../../shared/feed.ts';

/** The rewards of a session, as a record of the feed. */
export interface Rewards {
  readonly reward: number | null;
  /** By name. */
  readonly rewards: Readonly<Record<string, number>>;
  /** By the id of the turn. */
  readonly turns: Readonly<Record<string, number>>;
  /** By the id of the turn: one number for each token that was sampled in it. */
  readonly tokens: Readonly<Record<string, readonly number[]>>;
  /** Ids of changes that were made: a change that is sent again changes nothing. */
  readonly ids: readonly string[];
}

/** A change that names turns by their ids. */
export interface TurnRewards extends RewardChange {
  readonly turns?: Readonly<Record<string, number>>;
  readonly tokens?: Readonly<Record<string, readonly number[]>>;
  /** '': it has none. */
  readonly id: string;
}

/** How many ids of changes are known. */
const MAX_IDS = 64;

export const NO_REWARDS: Rewards = { reward: null, rewards: {}, turns: {}, tokens: {}, ids: [] };

/** @returns the same object: nothing changes */
export function rewardsAfter(before: Rewards, change: TurnRewards): Rewards {
  const { id, reward = before.reward, rewards = {}, turns = {}, tokens = {} } = change;
  if (id !== '' && before.ids.includes(id)) return before;
  const after = {
    reward,
    rewards: { ...before.rewards, ...rewards },
    turns: { ...before.turns, ...turns },
    tokens: { ...before.tokens, ...tokens },
    ids: before.ids,
  };
  if (JSON.stringify(after) === JSON.stringify(before)) return before;
  return id === '' ? after : { ...after, ids: [...before.ids, id].slice(-MAX_IDS) };
}

/** Whether there is a reward of any form. */
export const isReward = ({ reward, rewards, turns, tokens }: Rewards): boolean =>
  reward !== null || [rewards, turns, tokens].some((given) => Object.keys(given).length > 0);
