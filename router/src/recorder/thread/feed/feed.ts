import { type FeedOptions, type RewardChange, chosenLimit } from '../../shared/feed.ts';
import type { FeedStats } from '../../../observe/trainer-feed.ts';
import type { ChatName, SessionName, Turn, TurnAmendment } from '../../shared/turn.ts';
import { isOfStore, turnsOf } from '../store/store.ts';
import type { TurnWriter } from '../store/writer.ts';
import { Admissions } from './admissions.ts';
import { Book, type Past } from './book.ts';
import { CancelledLabels } from './cancelled-labels.ts';
import { Deliveries } from './deliveries.ts';
import { GroupFailures } from './failures.ts';
import { type Because, type Group, type Member, groupJson, isComplete, memberOf, readiness } from './group.ts';
import { factsOf, groupProblem, memberProblem } from './judge.ts';
import type { IncompleteSessions } from './incomplete-sessions.ts';
import { linesOf } from './member-lines.ts';
import { type RewardsChange, NO_REWARDS, detailsAfter, isReward, rewardsAfter } from './rewards.ts';
import { Owner } from './owner.ts';
import { type RowParts, deliveredGroup } from './rows.ts';

export interface FeedParts extends Omit<RowParts, 'store' | 'book'> {
  readonly options: FeedOptions;
  /** The name of this router among those that share the store. */
  readonly router: string;
  /** This router had the feed before: where another one has it now, it goes on without. */
  readonly isAgain: boolean;
  readonly writer: TurnWriter;
  /** Resolves when the turns that ended before the call are in the store. */
  readonly recorded: () => Promise<unknown>;
  readonly incomplete: IncompleteSessions;
}

/** What became of the end of a session, or of a reward. */
export interface FeedEnd {
  /** How many groups have a member of that name. */
  readonly members: number;
  /** A consumer has one of them, so the reward changes nothing. */
  readonly isTaken: boolean;
}

/** Groups of sessions on their way to a trainer: from their first requests to the consumer's ack. */
export class Feed {
  readonly deliveries: Deliveries;
  readonly admissions: Admissions;
  readonly failures = new GroupFailures();
  readonly damaged: readonly string[];
  readonly #parts: FeedParts;
  readonly #book: Book;
  readonly #owner: Owner | null;
  /** Complete groups whose members are to be looked at, or to be looked at again. */
  readonly #unjudged = new Set<Group>();
  readonly #judging = new Set<Group>();
  /** Changes of rewards in progress: the last one of each session. */
  readonly #rewarding = new Map<string, Promise<unknown>>();
  /** Sessions that the event loop is to stop. */
  #cancelled: ChatName[] = [];
  readonly #labels: CancelledLabels;

  private constructor(parts: FeedParts, book: Book, owner: Owner | null) {
    this.#owner = owner;
    this.#parts = parts;
    this.#book = book;
    this.damaged = book.damaged;
    this.#labels = new CancelledLabels(parts.writer);
    this.admissions = new Admissions(book, parts.options, parts.recorded, (name) => this.#stop(name));
    const rows = { ...parts, store: parts.writer.store, book };
    this.deliveries = new Deliveries(book, parts.options, this.failures, (group) => deliveredGroup(group, rows));
  }

  static async begin(parts: FeedParts, nowMs: number): Promise<Feed> {
    const { options, router, isAgain } = parts;
    const { records } = parts.writer.store;
    const owner = records.isShared ? new Owner(records, `feed/${options.name}/state`, router) : null;
    await owner?.claim().catch((error: unknown) => {
      if (!isAgain || owner.takenBy === null) throw error;
    });
    const book = new Book(owner?.guarded(records) ?? records, options, parts.incomplete);
    await book.load(nowMs);
    const feed = new Feed(parts, book, owner);
    if (feed.takenBy !== null) return feed;
    for (const group of book.groups.values()) {
      if (group.state === 'judged') feed.#unjudged.add(group);
      if (group.state === 'open') await feed.#readEnds(group, nowMs);
    }
    await book.flush(nowMs);
    return feed;
  }

  /** A turn is on its way to the store. */
  turnPut(turn: Turn | TurnAmendment): void {
    this.admissions.turnPut(turn);
    if ('session' in turn) this.#labels.turnPut(turn);
  }

  /** A session is over, by its client's word. */
  async ended(name: SessionName, change: RewardChange, nowMs: number): Promise<FeedEnd> {
    await this.admissions.joined(name.session);
    if (this.#book.groupsOf(name.session, name.tenant).length === 0) await this.#joinByTurns(name, nowMs);
    const groups = this.#book.groupsOf(name.session, name.tenant);
    for (const group of groups) {
      const member = memberOf(group, name.session);
      if (member.state !== 'open') continue;
      member.state = 'finished';
      this.#book.save(group);
      // A reward that came before the end.
      if (change.reward === undefined && member.rewards.reward !== null) await this.#keepReward(group, member);
    }
    return this.rewarded(name, { ...change, id: '' }, nowMs);
  }

  /** Stores the number that was given as the reward of a session with its turns too, for lists and exports. */
  async keepReward({ session, tenant }: SessionName): Promise<void> {
    for (const group of this.#book.groupsOf(session, tenant)) await this.#keepReward(group, memberOf(group, session));
  }

  /** Before the end of the session the store has no place for a reward. */
  async #keepReward({ tenant }: Group, { session, rewards: { reward } }: Member): Promise<void> {
    const { store } = this.#parts.writer;
    const [head] = await store.sessions({ session, tenant, limit: 1 });
    const outcome = head?.outcome ?? null;
    if (outcome === null || outcome.reward === reward) return;
    await store.finish({ session, tenant }, { reward }, outcome.finishedAtMs);
  }

  /** '': the session is in no group. */
  groupNameOf({ session, tenant }: ChatName): string {
    return this.#book.groupsOf(session, tenant)[0]?.name ?? '';
  }

  /** Whether the rewards would change what a consumer has, or had. */
  async isTaken({ session, tenant }: SessionName, change: RewardsChange): Promise<boolean> {
    const changes = ({ rewards }: Pick<Member, 'rewards'>): boolean => rewardsAfter(rewards, change) !== null;
    const members = this.#book.groupsOf(session, tenant).map((group) => ({ group, member: memberOf(group, session) }));
    if (members.length > 0)
      return members.some(({ group, member }) => isWithConsumer(group, member) && changes(member));
    const pasts = await this.#pastsOf({ session, tenant });
    return pasts.some((past) => past.isDelivered && changes(past));
  }

  /** Gives a session rewards, as far as no consumer has its group. */
  async rewarded(name: SessionName, change: RewardsChange, nowMs: number): Promise<FeedEnd> {
    await this.admissions.joined(name.session);
    const groups = this.#book.groupsOf(name.session, name.tenant);
    // One change of a session after another: each begins with what the one before it left.
    const before = this.#rewarding.get(name.session);
    const rewarding = (async () => {
      await before?.catch(() => {});
      return this.#reward(groups, name.session, change);
    })();
    this.#rewarding.set(name.session, rewarding);
    const isTaken = await rewarding.finally(() => {
      if (this.#rewarding.get(name.session) === rewarding) this.#rewarding.delete(name.session);
    });
    await this.#look(groups, nowMs);
    return { members: groups.length, isTaken };
  }

  /** @returns whether a consumer has the session, with one of the groups */
  async #reward(groups: readonly Group[], session: string, change: RewardsChange): Promise<boolean> {
    let isTaken = false;
    for (const group of groups) {
      const member = memberOf(group, session);
      const details = change.details === undefined ? null : await this.#book.detailsOf(member, group.tenant);
      const after = rewardsAfter(member.rewards, change);
      if (after === null) continue;
      if (isWithConsumer(group, member)) {
        isTaken = true;
        continue;
      }
      // It was dropped in the meantime.
      if (!this.#book.groups.has(group.id)) continue;
      if (details !== null) this.#book.setDetails(member, group.tenant, detailsAfter(details, change.details!));
      member.rewards = after;
      member.isRewarded = isReward(after);
      this.#book.save(group);
    }
    return isTaken;
  }

  /** What rewards are to a session without a pending group. `given`: it has them; `over`: its group is over, and went without it. */
  async pastRewards(name: SessionName, change: RewardsChange): Promise<'given' | 'over' | 'unknown'> {
    const pasts = await this.#pastsOf(name);
    if (pasts.length === 0) return 'unknown';
    return pasts.some(({ rewards }) => rewardsAfter(rewards, change) === null) ? 'given' : 'over';
  }

  async #pastsOf({ session, tenant }: SessionName): Promise<Past[]> {
    const heads = tenant === undefined ? await this.#parts.writer.store.sessions({ session, limit: 100 }) : [];
    const tenants = tenant === undefined ? heads.map((head) => head.tenant) : [tenant];
    const pasts = await Promise.all(tenants.map((each) => this.#book.pastOf(session, each)));
    return pasts.filter((past) => past !== null);
  }

  /** Ends the wait for a group: what is complete is delivered, if it is enough. @returns whether there is such a group */
  async close(name: string, tenant: string | undefined, nowMs: number): Promise<boolean> {
    const open = this.#named(name, tenant).filter(({ state }) => state === 'open');
    for (const group of open) this.#settle(group, 'closed', nowMs);
    // Groups that can't be judged while the store is away are closed all the same, and judged by a later tick.
    await this.#judgeAll(nowMs).catch(() => {});
    return open.length > 0;
  }

  groups(tenant: string | undefined, limit: number, after: number) {
    const wanted = [...this.#book.groups.values()].filter(
      (group) => (tenant === undefined || group.tenant === tenant) && group.id > after,
    );
    return wanted.slice(0, limit).map((group) => groupJson(group, this.#parts.options));
  }

  newest(limit: number) {
    return [...this.#book.groups.values()].slice(-limit).map((group) => groupJson(group, this.#parts.options));
  }

  groupsNamed(name: string, tenant: string | undefined) {
    return this.#named(name, tenant).map((group) => groupJson(group, this.#parts.options));
  }

  /** The router that has taken the feed over: what this one knows of it is of no use. null: none has. */
  get takenBy(): string | null {
    return this.#owner?.takenBy ?? null;
  }

  /** Whether a group, as far as this router knows, waits for the session or is on its way to a consumer. */
  has({ session, tenant }: SessionName): boolean {
    return this.#book.groupsOf(session, tenant).length > 0;
  }

  requireHeld(): void {
    this.#owner?.requireHeld();
  }

  /** Nothing is written any more: another router may begin the feed. */
  async release(nowMs: number): Promise<void> {
    await this.#labels.write(nowMs);
    await this.#book.flush(nowMs);
    await this.#owner?.release();
  }

  /** Deadlines and leases that have passed. @returns sessions to stop */
  async tick(nowMs: number): Promise<readonly ChatName[]> {
    await this.#owner?.beat(nowMs);
    this.deliveries.expire(nowMs);
    await this.#look([...this.#book.open], nowMs);
    await this.#book.prune(nowMs);
    await this.#labels.write(nowMs);
    const cancelled = this.#cancelled;
    this.#cancelled = [];
    return cancelled;
  }

  get stats(): FeedStats {
    const { counts, groups, versions } = this.#book;
    const { options } = this.#parts;
    const states = { open: 0, judged: 0, ready: 0, leased: 0 };
    let pendingMembers = 0;
    for (const group of groups.values()) {
      states[group.state]++;
      pendingMembers += group.members.length;
    }
    const version = versions.newest;
    const takenThisStep = counts.takenVersion === version ? counts.taken : 0;
    return {
      groups: counts.groups,
      members: counts.members,
      open: states.open + states.judged,
      ready: states.ready,
      leased: states.leased,
      acked: counts.acked,
      ackedMembers: counts.ackedMembers,
      pendingMembers,
      droppedGroups: counts.droppedGroups,
      droppedMembers: counts.droppedMembers,
      deliveries: counts.deliveries,
      expiredLeases: counts.expiredLeases,
      refused: counts.refused,
      waitingConsumers: this.deliveries.waiting,
      maxPending: chosenLimit(options),
      version,
      takenThisStep,
      wanted: options.stepGroups === null ? null : Math.max(0, options.stepGroups - takenThisStep),
    };
  }

  #named(name: string, tenant: string | undefined): Group[] {
    return [...this.#book.groups.values()].filter(
      (group) => group.name === name && (tenant === undefined || group.tenant === tenant),
    );
  }

  /** A router before this one was killed between a request of the session and the next record of its group. */
  async #joinByTurns({ session, tenant }: SessionName, nowMs: number): Promise<void> {
    // Not all of its requests have to name the group.
    const turn = (await turnsOf(this.#parts.writer.store, session, tenant)).findLast(({ group }) => group !== '');
    if (turn === undefined) return;
    const group = this.#book.newestNamed(turn.tenant, turn.group);
    const isWaiting = group?.state === 'open' && group.members.length < group.size;
    const isPast = (await this.#book.pastOf(session, turn.tenant)) !== null;
    if (isWaiting && !isPast && this.#book.groupsOf(session, turn.tenant).length === 0)
      this.#book.join(group, session, nowMs);
  }

  /** After a restart: sessions whose end is stored, and was not yet known to the feed. */
  async #readEnds(group: Group, nowMs: number): Promise<void> {
    const { store } = this.#parts.writer;
    for (const member of group.members.filter(({ state }) => state === 'open')) {
      const [head] = await store.sessions({ session: member.session, tenant: group.tenant, limit: 1 });
      if (head === undefined || head.outcome === null) continue;
      member.state = 'finished';
      const { reward } = head.outcome;
      if (reward !== null && !member.isRewarded) {
        member.rewards = { ...NO_REWARDS, reward };
        member.isRewarded = true;
      }
      this.#book.save(group);
    }
    const because = readiness(group, this.#parts.options, nowMs);
    if (because !== null) this.#settle(group, because, nowMs);
  }

  async #look(groups: readonly Group[], nowMs: number): Promise<void> {
    for (const group of groups) {
      const because = group.state === 'open' ? readiness(group, this.#parts.options, nowMs) : null;
      if (because !== null) this.#settle(group, because, nowMs);
    }
    await this.#judgeAll(nowMs);
  }

  /** The group waits for no further member. */
  #settle(group: Group, because: Because, nowMs: number): void {
    const { options } = this.#parts;
    group.state = 'judged';
    group.because = because;
    const complete = group.members.filter((member) => isComplete(member, options));
    const delivered = new Set(complete.slice(0, because === 'first' ? options.first! : undefined));
    const cancels = options.rest === 'cancel';
    for (const member of group.members) {
      if (delivered.has(member)) continue;
      member.dropped = cancels && member.state === 'open' ? 'cancelled' : 'late';
      if (member.dropped === 'cancelled') this.#cancel(member, group.tenant);
    }
    this.#book.closed(group, cancels, nowMs);
    this.#book.save(group);
    this.#unjudged.add(group);
  }

  #cancel(member: Member, tenant: string): void {
    member.state = 'cancelled';
    this.#stop({ session: member.session, tenant });
  }

  /** No group waits for the session. */
  #stop(name: ChatName): void {
    this.#cancelled.push(name);
    this.#labels.stopped(name);
  }

  async #judgeAll(nowMs: number): Promise<void> {
    try {
      for (const group of this.#unjudged) {
        // Another call may be at it, or have ended it.
        if (this.#judging.has(group) || this.failures.isWaiting(group, nowMs)) continue;
        this.#judging.add(group);
        await this.#judge(group, nowMs)
          .catch((error: unknown) => this.#notJudged(group, error, nowMs))
          .finally(() => this.#judging.delete(group));
      }
    } finally {
      await this.#book.flush(nowMs);
    }
    this.deliveries.wake(nowMs);
  }

  /** Looks at what is recorded of a complete group. Engines may still be asked for versions: then it is looked at again later. */
  async #judge(group: Group, nowMs: number): Promise<void> {
    const { writer, options, recorded } = this.#parts;
    await recorded();
    for (const member of group.members) {
      if (member.dropped !== null) continue;
      const lines = await linesOf({ session: member.session, tenant: group.tenant }, writer);
      if (lines === null) return;
      const facts = factsOf(lines);
      member.versions = facts?.versions ?? [];
      member.dropped = memberProblem(member, facts, options);
    }
    this.#unjudged.delete(group);
    const problem = groupProblem(group, options);
    if (problem === null) this.deliveries.ready(group, nowMs);
    else this.#book.remove(group, problem);
  }

  /** Its turns can't be read. Throws while the store is away: then no other group can be judged either. */
  #notJudged(group: Group, error: unknown, nowMs: number): void {
    if (isOfStore(error)) throw error;
    if (!this.failures.add(group, error, nowMs)) return;
    this.#unjudged.delete(group);
    this.#book.remove(group, 'failed');
  }
}

/** A consumer has the group, and got the member with it. */
const isWithConsumer = ({ state }: Group, { dropped }: Member): boolean => state === 'leased' && dropped === null;
