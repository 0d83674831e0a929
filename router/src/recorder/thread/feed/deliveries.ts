import type { DropReason, FeedOptions } from '../../shared/feed.ts';
import type { Book } from './book.ts';
import type { Group, Lease } from './group.ts';
import { deliveredOf, lacksReward } from './group.ts';
import { groupProblem } from './judge.ts';
import type { GroupFailures } from './failures.ts';
import type { DeliveredGroup, SentGroup } from './rows.ts';
import { feedNow } from './feed-clock.ts';

/** A consumer's request for groups. */
export interface Take {
  /** `RecorderThread.newId()`. */
  readonly id: number;
  /** undefined: groups of all tenants. */
  readonly tenant: string | undefined;
  /** At most so many groups. */
  readonly max: number;
  /** Only groups with a larger position. */
  readonly cursor: number;
  readonly consumer: string;
  /** null: as the plugin's option says. */
  readonly leaseSecs: number | null;
  readonly waitMs: number;
}

/** `acked`: now, or by an earlier ack with this id; `expired`: another consumer may have the group. */
export type AckResult = 'acked' | 'expired' | 'unknown';

interface Waiter {
  readonly take: Take;
  readonly found: (groups: readonly Group[]) => void;
  readonly timer: NodeJS.Timeout;
}

/** Groups on their way to a consumer. */
interface Sending {
  readonly leased: readonly { readonly group: Group; readonly lease: Lease | null }[];
  /** How many of them are whole in bytes that were made; the next one may be so in part. */
  made: number;
  /** How many of them are whole in bytes that the consumer's connection took. */
  sent: number;
}

const CLAIM = /^(\d+)-(\d+)$/;

/** Groups that are ready: who gets them, for how long, and what follows. */
export class Deliveries {
  readonly #book: Book;
  readonly #options: FeedOptions;
  readonly #rows: (group: Group) => Promise<DeliveredGroup>;
  readonly #failures: GroupFailures;
  /** By position. */
  readonly #ready: Group[];
  readonly #leased: Set<Group>;
  /** In the order in which they came. */
  readonly #waiters = new Map<number, Waiter>();
  readonly #sending = new Map<number, Sending>();

  constructor(
    book: Book,
    options: FeedOptions,
    failures: GroupFailures,
    rows: (group: Group) => Promise<DeliveredGroup>,
  ) {
    this.#book = book;
    this.#failures = failures;
    this.#options = options;
    this.#rows = rows;
    const groups = [...book.groups.values()];
    this.#ready = groups.filter(({ state }) => state === 'ready').toSorted((a, b) => a.position - b.position);
    this.#leased = new Set(groups.filter(({ state }) => state === 'leased'));
  }

  get waiting(): number {
    return this.#waiters.size;
  }

  /** The group may be delivered from now on. */
  ready(group: Group, nowMs: number): void {
    group.state = 'ready';
    group.position = this.#book.nextId(nowMs);
    group.readyMs = nowMs;
    this.#ready.push(group);
    this.#book.save(group);
  }

  /** Leases groups to a consumer, or waits until there is one. @returns empty: there was none in that time */
  async take(take: Take, nowMs: number): Promise<readonly Group[]> {
    const groups = this.#lease(take, nowMs);
    return groups.length === 0 && take.waitMs > 0 ? this.#wait(take) : this.#written(groups, nowMs);
  }

  /** The lease is on record before a byte of the group is sent. A store that is away gives no groups out. */
  async #written(groups: readonly Group[], nowMs: number): Promise<readonly Group[]> {
    if (groups.length === 0) return groups;
    try {
      await this.#book.flush(nowMs);
      return groups;
    } catch (error) {
      for (const group of groups) this.#release(group);
      throw error;
    }
  }

  /** Gives what is ready to consumers that wait, in their order. */
  wake(nowMs: number): void {
    for (const { take } of this.#waiters.values()) {
      const groups = this.#lease(take, nowMs);
      if (groups.length > 0) this.#answer(take.id, groups);
    }
  }

  /** The rows of groups that `take` leased, one after the other. A group that can't be delivered any more is dropped. */
  deliver(take: number, groups: readonly Group[]): AsyncGenerator<SentGroup> {
    const sending = { leased: groups.map((group) => ({ group, lease: group.lease })), made: 0, sent: 0 };
    this.#sending.set(take, sending);
    return this.#deliver(sending);
  }

  async *#deliver(sending: Sending): AsyncGenerator<SentGroup> {
    const encoded = (): void => void sending.made++;
    for (const { group, lease } of sending.leased) {
      const delivered = await this.#rows(group);
      // Reading may take longer than the lease, and a member may have no rows any more.
      if (isUnder(group, lease) && !this.#isDropped(group)) yield { ...delivered, encoded };
      else sending.made++;
    }
  }

  /** The bytes of the next group could not be made. */
  failed(take: number, error: unknown, nowMs: number): void {
    const sending = this.#sending.get(take);
    const next = sending?.leased[sending.made];
    if (next === undefined || !isUnder(next.group, next.lease)) return;
    if (this.#failures.add(next.group, error, nowMs)) this.#remove(next.group, 'failed');
  }

  /** The consumer's connection took all bytes that were made. */
  sent(take: number): void {
    const sending = this.#sending.get(take);
    if (sending !== undefined) sending.sent = sending.made;
  }

  /** The response to `take` is complete, or its consumer has left: groups that it was not sent are delivered again. */
  async end(take: number): Promise<void> {
    this.#answer(take, []);
    const sending = this.#sending.get(take);
    if (sending === undefined) return;
    this.#sending.delete(take);
    for (const { group, lease } of sending.leased.slice(sending.sent)) if (isUnder(group, lease)) this.#release(group);
    await this.#book.flush(feedNow());
    this.wake(feedNow());
  }

  async ack(claim: string, tenant: string | undefined, nowMs: number): Promise<AckResult> {
    const group = this.#claimed(claim, tenant);
    // A lease that has expired counts, as long as no other consumer got the group.
    if (group !== null && group.deliveries === Number(CLAIM.exec(claim)![2])) {
      this.#book.acked(claim);
      this.#remove(group, null);
      await this.#book.flush(nowMs);
      return 'acked';
    }
    if (await this.#book.wasAcked(claim)) {
      // The store may not have taken the first one.
      await this.#book.flush(nowMs);
      return 'acked';
    }
    return CLAIM.test(claim) ? 'expired' : 'unknown';
  }

  /** The consumer gives the group back: it is delivered again at once. */
  async nack(claim: string, tenant: string | undefined, nowMs: number): Promise<AckResult> {
    const group = this.#claimed(claim, tenant);
    if (group === null || group.lease?.id !== claim) return CLAIM.test(claim) ? 'expired' : 'unknown';
    this.#release(group);
    await this.#book.flush(nowMs);
    this.wake(nowMs);
    return 'acked';
  }

  async renew(claim: string, tenant: string | undefined, leaseSecs: number | null, nowMs: number): Promise<AckResult> {
    const group = this.#claimed(claim, tenant);
    if (group === null || group.lease?.id !== claim) return CLAIM.test(claim) ? 'expired' : 'unknown';
    group.lease = { ...group.lease, untilMs: nowMs + this.#leaseMs(leaseSecs) };
    this.#book.save(group);
    await this.#book.flush(nowMs);
    return 'acked';
  }

  /** Leases that have passed: their groups are delivered again. */
  expire(nowMs: number): void {
    for (const group of this.#leased) {
      if (group.lease!.untilMs > nowMs) continue;
      this.#book.counts.expiredLeases++;
      this.#release(group);
    }
  }

  /** No consumer waits any more. */
  close(): void {
    for (const id of this.#waiters.keys()) this.#answer(id, []);
  }

  #claimed(claim: string, tenant: string | undefined): Group | null {
    const group = this.#book.groups.get(Number(CLAIM.exec(claim)?.[1] ?? NaN)) ?? null;
    const isOther = group === null || (tenant !== undefined && group.tenant !== tenant);
    return isOther || group.deliveries === 0 ? null : group;
  }

  #lease({ tenant, max, cursor, consumer, leaseSecs }: Take, nowMs: number): Group[] {
    const { counts, versions } = this.#book;
    const leased: Group[] = [];
    for (let i = 0; i < this.#ready.length && leased.length < max;) {
      const group = this.#ready[i]!;
      const isOther = group.position <= cursor || (tenant !== undefined && group.tenant !== tenant);
      if (isOther || this.#failures.isWaiting(group, nowMs)) {
        i++;
        continue;
      }
      this.#markStale(group);
      // It is not among them any more.
      if (this.#isDropped(group)) continue;
      if (lacksReward(group, this.#options)) {
        i++;
        continue;
      }
      this.#ready.splice(i, 1);
      this.#leased.add(group);
      const first = group.deliveries++ === 0;
      group.state = 'leased';
      const id = `${group.id}-${group.deliveries}`;
      group.lease = { id, untilMs: nowMs + this.#leaseMs(leaseSecs), consumer };
      counts.deliveries++;
      if (first) {
        if (counts.takenVersion !== versions.newest) counts.taken = 0;
        counts.takenVersion = versions.newest;
        counts.taken++;
      }
      this.#book.save(group);
      leased.push(group);
    }
    return leased;
  }

  #leaseMs(leaseSecs: number | null): number {
    return 1_000 * (leaseSecs ?? this.#options.leaseSecs);
  }

  /** Members whose tokens have become too old since the group was ready. */
  #markStale(group: Group): void {
    const { maxLag } = this.#options;
    if (maxLag === null) return;
    const { versions } = this.#book;
    for (const member of deliveredOf(group))
      if (member.versions.some((name) => versions.lag(name) > maxLag)) member.dropped = 'stale';
  }

  #isDropped(group: Group): boolean {
    const problem = groupProblem(group, this.#options);
    if (problem !== null) this.#remove(group, problem);
    return problem !== null;
  }

  #remove(group: Group, reason: DropReason | null): void {
    this.#leased.delete(group);
    const at = this.#ready.indexOf(group);
    if (at >= 0) this.#ready.splice(at, 1);
    this.#book.remove(group, reason);
  }

  #release(group: Group): void {
    if (!this.#leased.delete(group)) return;
    group.state = 'ready';
    group.lease = null;
    const after = this.#ready.findIndex(({ position }) => position > group.position);
    this.#ready.splice(after < 0 ? this.#ready.length : after, 0, group);
    this.#book.save(group);
  }

  #wait(take: Take): Promise<readonly Group[]> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.#answer(take.id, []), take.waitMs);
      const found = (groups: readonly Group[]): void => void this.#written(groups, feedNow()).then(resolve, reject);
      this.#waiters.set(take.id, { take, found, timer });
    });
  }

  #answer(id: number, groups: readonly Group[]): void {
    const waiter = this.#waiters.get(id);
    if (waiter === undefined) return;
    this.#waiters.delete(id);
    clearTimeout(waiter.timer);
    waiter.found(groups);
  }
}

/** Whether the group is still leased as it was then. */
const isUnder = (group: Group, lease: Lease | null): boolean => group.state === 'leased' && group.lease === lease;
