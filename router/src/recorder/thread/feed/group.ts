import type { GroupRow } from '../../../observe/trainer-feed.ts';
import type { DropReason, FeedOptions } from '../../shared/feed.ts';
import { type MemberRewards, NO_REWARDS } from './rewards.ts';

/** A session of a group. */
export interface Member {
  readonly session: string;
  /** Unix ms. */
  readonly startedAtMs: number;
  state: 'open' | 'finished' | 'cancelled';
  /** A reward of any form was given. */
  isRewarded: boolean;
  rewards: MemberRewards;
  /** A turn of it is on no record. Left out in records of earlier versions. */
  isIncomplete?: boolean;
  /** Why it is not delivered; null: it is, as far as is known. */
  dropped: DropReason | null;
  /** As judged when the group was complete: the versions of the weights that sampled its tokens. */
  versions: readonly string[];
}

export const newMember = (session: string, startedAtMs: number, isIncomplete: boolean): Member => ({
  session,
  startedAtMs,
  state: 'open',
  isRewarded: false,
  rewards: NO_REWARDS,
  isIncomplete,
  dropped: null,
  versions: [],
});

/** What delivered a group. */
export interface Lease {
  readonly id: string;
  /** Unix ms. */
  readonly untilMs: number;
  readonly consumer: string;
}

/** Why a group is not waited for any longer. */
export type Because = 'all' | 'first' | 'deadline' | 'closed';

/** The sessions of one prompt, as a record of the feed: plain JSON. */
export interface Group {
  /** Unique, and larger than the ids of earlier groups. */
  readonly id: number;
  readonly tenant: string;
  readonly name: string;
  readonly size: number;
  /** Unix ms. */
  readonly beganMs: number;
  readonly members: Member[];
  /** `judged` is between `open` and `ready`: what was recorded of its members is looked at. */
  state: 'open' | 'judged' | 'ready' | 'leased';
  because: Because | null;
  /** Its place in the feed, larger than that of groups that were ready earlier; 0: it was not ready yet. */
  position: number;
  readyMs: number;
  deliveries: number;
  lease: Lease | null;
}

export const isComplete = ({ state, isRewarded }: Member, { needsReward }: FeedOptions): boolean =>
  state === 'finished' && (isRewarded || !needsReward);

/** Why a group need not wait any longer; null: it waits. */
export function readiness(group: Group, options: FeedOptions, nowMs: number): Because | null {
  const complete = group.members.filter((member) => isComplete(member, options)).length;
  if (complete >= group.size) return 'all';
  if (options.first !== null && complete >= options.first) return 'first';
  const { deadlineSecs } = options;
  return deadlineSecs > 0 && nowMs - group.beganMs >= 1_000 * deadlineSecs ? 'deadline' : null;
}

/** How many members a group has at least when it is delivered. */
export const neededMembers = ({ size }: Group, { minMembers, first }: FeedOptions): number =>
  Math.min(size, minMembers ?? first ?? size);

/** Members that are delivered. */
export const deliveredOf = (group: Group): Member[] => group.members.filter(({ dropped }) => dropped === null);

/** Whether a group that was complete waits again: the reward of a member was removed. */
export const lacksReward = (group: Group, { needsReward }: FeedOptions): boolean =>
  needsReward && deliveredOf(group).some(({ isRewarded }) => !isRewarded);

/** @param session of a member */
export const memberOf = (group: Group, session: string): Member =>
  group.members.find((member) => member.session === session)!;

/** The group as `GET /groups/{id}` shows it: who is missing, and why. */
export function groupJson(group: Group, options: FeedOptions): GroupRow {
  const waitsFor = (member: Member): GroupRow['members'][number]['waits_for'] => {
    const isAwaited = group.state === 'open' || (group.state === 'ready' && member.dropped === null);
    if (!isAwaited || isComplete(member, options)) return null;
    return member.state === 'open' ? 'end of session' : 'reward';
  };
  return {
    id: group.id,
    group: group.name,
    tenant: group.tenant,
    state: group.state,
    because: group.because,
    size: group.size,
    began_at_ms: group.beganMs,
    ready_at_ms: group.readyMs === 0 ? null : group.readyMs,
    deadline_at_ms: options.deadlineSecs > 0 ? group.beganMs + 1_000 * options.deadlineSecs : null,
    deliveries: group.deliveries,
    leased_to: group.lease?.consumer ?? null,
    leased_until_ms: group.lease?.untilMs ?? null,
    not_begun: group.state === 'open' ? group.size - group.members.length : 0,
    members: group.members.map((member) => ({
      session: member.session,
      state: member.state,
      started_at_ms: member.startedAtMs,
      reward: member.rewards.reward,
      rewards: member.rewards.named,
      waits_for: waitsFor(member),
      dropped: member.dropped,
    })),
  };
}
