/** How a session ended, as its client says. */
export interface SessionOutcome {
  /** Unix ms: when its client said so last. */
  readonly finishedAtMs: number;
  /** null: none was given. */
  readonly reward: number | null;
  readonly labels: readonly string[];
}

/** What a client says with the end of a session. A member that is left out stays as it was. */
export interface OutcomeChange {
  readonly reward?: number | null | undefined;
  readonly labels?: readonly string[] | undefined;
}

/** Which outcomes are asked for; a member that is left out limits nothing. */
export interface OutcomeQuery {
  /** Whether the session has ended by its client's word. */
  readonly finished?: boolean | undefined;
  /** The least and the largest reward; a session without a reward has neither. */
  readonly minReward?: number | undefined;
  readonly maxReward?: number | undefined;
  readonly label?: string | undefined;
}

/** The header with the reward of a session that ends with its request. */
export const REWARD_HEADER = 'x-turnout-reward';
const DECIMAL = /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i;

/** @returns null: the value of the header is no decimal number */
export function rewardIn(value: string): number | null {
  const reward = DECIMAL.test(value.trim()) ? Number(value) : NaN;
  return Number.isFinite(reward) ? reward : null;
}

export const outcomeAfter = (
  before: SessionOutcome | null,
  { reward = before?.reward ?? null, labels = before?.labels ?? [] }: OutcomeChange,
  nowMs: number,
): SessionOutcome => ({ finishedAtMs: nowMs, reward, labels });

export function wantsOutcome(
  { finished, minReward = -Infinity, maxReward = Infinity, label }: OutcomeQuery,
  outcome: SessionOutcome | null,
): boolean {
  if (finished !== undefined && finished !== (outcome !== null)) return false;
  if (label !== undefined && outcome?.labels.includes(label) !== true) return false;
  if (minReward === -Infinity && maxReward === Infinity) return true;
  const reward = outcome?.reward ?? null;
  return reward !== null && reward >= minReward && reward <= maxReward;
}

/** As listings and exports tell it; the same members with and without an outcome. */
export const outcomeJson = (outcome: SessionOutcome | null) => ({
  finished: outcome !== null,
  finished_at_ms: outcome?.finishedAtMs ?? null,
  reward: outcome?.reward ?? null,
  labels: outcome?.labels ?? [],
});
