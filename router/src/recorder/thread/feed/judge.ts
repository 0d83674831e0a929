import { type DropReason, type FeedOptions, type MemberFlag, memberFlags } from '../../shared/feed.ts';
import type { TurnOutline } from '../store/store.ts';
import { leavesOf } from '../export/trajectory.ts';
import { type Group, type Member, deliveredOf, neededMembers } from './group.ts';
import type { MemberLines } from './member-lines.ts';

/** What is recorded of a session. */
export interface SessionFacts {
  /** Of its longest trajectory. */
  readonly tokens: number;
  readonly flags: readonly MemberFlag[];
  readonly versions: readonly string[];
}

const tests: Readonly<Record<MemberFlag, (turn: TurnOutline) => boolean>> = {
  not_exact: ({ isExact }) => isExact === false,
  unknown_logprobs: ({ unknownLogprobs }) => unknownLogprobs !== 0,
  unknown_versions: ({ versions }) => versions.some(({ version }) => version === null),
  ambiguous: ({ isAmbiguous }) => isAmbiguous === true,
  drift: ({ drift }) => drift !== null,
  resumed: ({ seams }) => (seams ?? []).length > 0,
  truncated: ({ finishReason }) => finishReason === null || finishReason === 'abort',
};

/** @returns null: nothing is recorded of it */
export function factsOf({ turns, before }: MemberLines): SessionFacts | null {
  if (turns.length === 0) return null;
  const leaves = leavesOf(turns);
  const all = [...before, ...turns];
  // Its trajectories have the tokens of the turns before it too.
  const versions = all.flatMap((turn) => turn.versions.flatMap(({ version }) => version ?? []));
  return {
    tokens: leaves.reduce((most, { keeps, tokens }) => Math.max(most, keeps + tokens), 0),
    flags: flagsOf(leaves, all),
    versions: [...new Set(versions)],
  };
}

/** What a later turn continued is not truncated. */
export const flagsOf = (leaves: readonly TurnOutline[], all: readonly TurnOutline[]): MemberFlag[] =>
  memberFlags.filter((flag) => (flag === 'truncated' ? leaves : all).some(tests[flag]));

/** Why a member is not delivered; null: it is. */
export function memberProblem(
  { isIncomplete = false }: Pick<Member, 'isIncomplete'>,
  facts: Pick<SessionFacts, 'tokens' | 'flags'> | null,
  options: Pick<FeedOptions, 'dropFlags' | 'maxTokens'>,
): DropReason | null {
  if (facts === null || isIncomplete) return 'incomplete';
  if (facts.flags.some((flag) => options.dropFlags.includes(flag))) return 'flagged';
  return options.maxTokens !== null && facts.tokens > options.maxTokens ? 'length' : null;
}

/** Why a group whose members were judged is not delivered; null: it is. */
export function groupProblem(group: Group, options: FeedOptions): DropReason | null {
  const delivered = deliveredOf(group);
  if (delivered.length < neededMembers(group, options)) {
    const bad = group.members.find(({ dropped }) => dropped !== null && dropped !== 'late' && dropped !== 'cancelled');
    return bad?.dropped ?? (group.because === 'closed' ? 'cancelled' : 'deadline');
  }
  const [first] = delivered;
  const isConstant =
    delivered.length > 1 &&
    delivered.every(({ rewards: { reward } }) => reward !== null && reward === first!.rewards.reward);
  return options.dropConstantReward && isConstant ? 'constant_reward' : null;
}
