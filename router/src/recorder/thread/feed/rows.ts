import type { TopTokens } from '../../../generation/delta.ts';
import type { DropReason, FeedOptions, MemberFlag } from '../../shared/feed.ts';
import type { ExpertsReader, ExpertsRows } from '../chat/experts-rows.ts';
import { topTokensOf } from '../export/top-tokens.ts';
import type { Trajectory } from '../export/trajectory.ts';
import { noProgress, walk } from '../export/walk.ts';
import { type TrajectoryStore, outlineOf } from '../store/store.ts';
import type { Book } from './book.ts';
import { type Group, type Member, deliveredOf } from './group.ts';
import { flagsOf, memberProblem } from './judge.ts';
import type { RewardDetails } from './rewards.ts';

/** A trajectory of a group. */
export interface Row {
  readonly session: string;
  readonly trajectory: string;
  readonly model: string;
  readonly ids: Int32Array;
  /** 1 where sampled. */
  readonly mask: Uint8Array;
  /** NaN: not known; 0 for tokens that were not sampled. */
  readonly logprobs: Float64Array;
  /** Of each token: an index of `versionNames`; -1: not sampled, or not known. */
  readonly versions: Int32Array;
  /** How many versions the oldest of its weights is behind the newest that is known. */
  readonly lag: number;
  readonly reward: number | null;
  readonly rewards: Readonly<Record<string, number>>;
  /** Of each turn; null: none. */
  readonly turnRewards: readonly (number | null)[];
  /** Of each token, NaN where it has none; null: no token has one. */
  readonly tokenRewards: Float64Array | null;
  /** The tokens that each turn adds, as positions. */
  readonly turns: readonly RowTurn[];
  readonly flags: readonly MemberFlag[];
  readonly labels: readonly string[];
  readonly experts: ExpertsRows | null;
  readonly topTokens: readonly (TopTokens | null)[] | null;
}

export interface RowTurn {
  readonly id: string;
  readonly from: number;
  readonly to: number;
  readonly finishReason: string | null;
  readonly worker: string;
}

/** A group as it is delivered: all of its rows in memory. */
export interface DeliveredGroup {
  readonly group: Group;
  readonly lease: string;
  /** The newest version that is known. */
  readonly version: string | null;
  readonly versionNames: readonly string[];
  readonly rows: readonly Row[];
}

/** On its way to a consumer. */
export interface SentGroup extends DeliveredGroup {
  /** To be called before the last of its bytes are returned: the consumer has the group when its connection took those. */
  readonly encoded: () => void;
}

export interface RowParts {
  readonly options: Pick<FeedOptions, 'dropFlags' | 'maxTokens' | 'maxLag'>;
  readonly store: TrajectoryStore;
  readonly book: Book;
  /** null: no routed experts are kept. */
  readonly experts: ExpertsReader | null;
}

/** Reads the rows of a group. A member that is not to be delivered any more is marked as dropped. */
export async function deliveredGroup(group: Group, parts: RowParts): Promise<DeliveredGroup> {
  const { book, store } = parts;
  const names = new Map<string, number>();
  const rows: Row[] = [];
  for (const member of deliveredOf(group)) {
    const details = await book.detailsOf(member, group.tenant);
    const progress = noProgress();
    const query = { session: member.session, tenant: group.tenant };
    const own: Row[] = [];
    for await (const trajectory of walk(store, query, progress, false))
      own.push(await rowOf(trajectory, member, details, names, parts));
    if (progress.damaged !== null) throw progress.damaged;
    const isWhole = own.length > 0 && Object.keys(progress.leftOut).length === 0;
    member.dropped = isWhole ? problemOf(member, own, parts) : 'incomplete';
    if (member.dropped === null) rows.push(...own);
  }
  const { newest: version } = book.versions;
  return { group, lease: group.lease?.id ?? '', version, versionNames: [...names.keys()], rows };
}

/** Turns may have been stored, or lost, since the member was judged: of requests that ended after their session. */
function problemOf(member: Member, rows: readonly Row[], { options }: RowParts): DropReason | null {
  const tokens = rows.reduce((most, { ids }) => Math.max(most, ids.length), 0);
  const isStale = options.maxLag !== null && rows.some(({ lag }) => lag > options.maxLag!);
  const facts = { tokens, flags: rows.flatMap(({ flags }) => flags) };
  return memberProblem(member, facts, options) ?? (isStale ? 'stale' : null);
}

async function rowOf(
  trajectory: Trajectory,
  { rewards }: Member,
  details: RewardDetails,
  names: Map<string, number>,
  { book, experts }: RowParts,
): Promise<Row> {
  const { ids, turns } = trajectory;
  const versions = new Int32Array(ids.length).fill(-1);
  let lag = 0;
  for (const { version, from, to } of trajectory.versions) {
    if (version === null) continue;
    if (!names.has(version)) names.set(version, names.size);
    versions.fill(names.get(version)!, from, to);
    lag = Math.max(lag, book.versions.lag(version));
  }
  const bounds = boundsOf(trajectory);
  return {
    session: trajectory.session,
    trajectory: trajectory.id,
    model: trajectory.model,
    ids,
    mask: trajectory.mask,
    logprobs: trajectory.logprobs,
    versions,
    lag,
    reward: rewards.reward,
    rewards: rewards.named,
    turnRewards: bounds.map(({ id }) => details.turns[id] ?? null),
    tokenRewards: tokenRewardsOf(trajectory, bounds, details.tokens),
    turns: bounds,
    flags: flagsOf([outlineOf(turns.at(-1)!)], turns.map(outlineOf)),
    labels: trajectory.outcome?.labels ?? [],
    experts: (await experts?.read(trajectory, ids.length)) ?? null,
    topTokens: topTokensOf(trajectory),
  };
}

/** What each turn adds, as far as the turn after it keeps it. */
export function boundsOf({ ids, turns }: Trajectory): RowTurn[] {
  const bounds: RowTurn[] = [];
  let to = ids.length;
  for (const { id, keeps, finishReason, worker } of turns.toReversed()) {
    const from = Math.min(keeps, to);
    bounds.push({ id, from, to, finishReason, worker });
    to = from;
  }
  return bounds.toReversed();
}

function tokenRewardsOf(
  { ids, mask }: Trajectory,
  bounds: readonly RowTurn[],
  tokens: RewardDetails['tokens'],
): Float64Array | null {
  if (bounds.every(({ id }) => tokens[id] === undefined)) return null;
  const rewards = new Float64Array(ids.length).fill(NaN);
  for (const { id, from, to } of bounds) {
    const given = tokens[id] ?? [];
    let next = 0;
    for (let i = from; i < to; i++) if (mask[i] === 1) rewards[i] = given[next++] ?? NaN;
  }
  return rewards;
}
