import type { RewardChange } from '../../shared/feed.ts';

/** The rewards of a session as a whole. */
export interface MemberRewards {
  /** null: there is none. */
  readonly reward: number | null;
  readonly named: Readonly<Record<string, number>>;
  /** Ids of changes that were made: a change that is sent again changes nothing. */
  readonly ids: readonly string[];
  /** Some of its turns or tokens have rewards of their own. */
  readonly hasDetails: boolean;
}

/** The rewards of parts of a session. */
export interface RewardDetails {
  /** By the id of the turn. */
  readonly turns: Readonly<Record<string, number>>;
  /** By the id of the turn: one number for each token that was sampled in it. */
  readonly tokens: Readonly<Record<string, readonly number[]>>;
}

/** A change of rewards. */
export interface RewardsChange extends RewardChange {
  readonly details?: RewardDetails;
  /** '': it has none. */
  readonly id: string;
}

/** How many ids of changes are known. */
const MAX_IDS = 64;

export const NO_REWARDS: MemberRewards = { reward: null, named: {}, ids: [], hasDetails: false };
export const NO_DETAILS: RewardDetails = { turns: {}, tokens: {} };

/** @returns null: the change was made already, or changes nothing */
export function rewardsAfter(before: MemberRewards, change: RewardsChange): MemberRewards | null {
  const { id, reward = before.reward, rewards = {}, details } = change;
  if (id !== '' && before.ids.includes(id)) return null;
  const isSame =
    reward === before.reward && Object.entries(rewards).every(([name, value]) => before.named[name] === value);
  if (isSame && details === undefined) return null;
  return {
    reward,
    named: { ...before.named, ...rewards },
    ids: id === '' ? before.ids : [...before.ids, id].slice(-MAX_IDS),
    hasDetails: before.hasDetails || details !== undefined,
  };
}

export const detailsAfter = (before: RewardDetails, { turns, tokens }: RewardDetails): RewardDetails => ({
  turns: { ...before.turns, ...turns },
  tokens: { ...before.tokens, ...tokens },
});

/** Whether there is a reward of any form. */
export const isReward = ({ reward, named, hasDetails }: MemberRewards): boolean =>
  reward !== null || hasDetails || Object.keys(named).length > 0;
