import type { DropReason, FeedOptions } from '../../shared/feed.ts';
import type { ChatName } from '../../shared/turn.ts';
import { Tally } from '../../../kit/tally.ts';
import { tenantKey } from '../../../classify/tenant-key.ts';
import type { RecordChange, RecordTables } from '../store/records.ts';
import { readRecord, readRecords } from '../store/store.ts';
import { type Group, type Member, memberOf, newMember } from './group.ts';
import { IncompleteSessions } from './incomplete-sessions.ts';
import { type MemberRewards, NO_DETAILS, type RewardDetails } from './rewards.ts';
import { VersionOrder } from './version-order.ts';

/** How long sessions that a group did not wait for are known by the group's name: later ones begin a new group. */
const LATECOMERS_MS = 600_000;
/** How long acks and sessions of earlier groups are known. */
const PAST_MS = 86_400_000;
const PRUNE_EVERY_MS = 3_600_000;

/** Counts since the feed began, over restarts. Groups and members that came are those that are pending, acked or dropped. */
interface Counts {
  /** The largest id or position that was given. */
  lastId: number;
  groups: number;
  members: number;
  acked: number;
  ackedMembers: number;
  deliveries: number;
  expiredLeases: number;
  refused: number;
  /** Groups that were taken with the newest version, and that version. */
  taken: number;
  takenVersion: string | null;
  readonly droppedGroups: Partial<Record<DropReason, number>>;
  readonly droppedMembers: Partial<Record<DropReason, number>>;
}

/** Sessions of a group that is not waiting any longer: so many may still come. */
interface Latecomers {
  left: number;
  readonly isCancelled: boolean;
  readonly untilMs: number;
}

/** What is known of a session whose group is over. */
export interface Past {
  readonly isCancelled: boolean;
  /** A consumer got and acked it with its group. */
  readonly isDelivered: boolean;
  readonly rewards: MemberRewards;
}

/** The groups of the feed in memory, and their records, which the next process reads. */
export class Book {
  /** By id, in the order of their beginnings. */
  readonly groups = new Map<number, Group>();
  /** Those of them that wait for members. */
  readonly open = new Set<Group>();
  /** How many groups each tenant has. */
  readonly perTenant = new Tally();
  readonly versions = new VersionOrder();
  counts: Counts = newCounts();
  /** Records that could not be read when the feed began. */
  readonly damaged: string[] = [];
  readonly #records: RecordTables;
  readonly #name: string;
  readonly #incomplete: IncompleteSessions;
  /** The newest group of each name, by tenant. */
  readonly #newest = new Map<string, Group>();
  readonly #bySession = new Map<string, Group[]>();
  /** By tenant and name, in the order of their ends. */
  readonly #late = new Map<string, Latecomers>();
  #pruneAtMs = 0;
  #changes = new Map<string, RecordChange>();
  /** Changes that are being written. */
  #inWrite: ReadonlyMap<string, RecordChange> = new Map();
  /** Resolves after the last flush that has begun. */
  #flushed: Promise<void> = Promise.resolve();
  /** A flush that waits for the one before it. */
  #nextFlush: Promise<void> | null = null;
  /** Groups that have changed, and whether the counts have not. */
  readonly #unsaved = new Set<Group>();
  #areCounted = true;

  constructor(records: RecordTables, { name }: Pick<FeedOptions, 'name'>, incomplete = new IncompleteSessions()) {
    this.#records = records;
    this.#name = name;
    this.#incomplete = incomplete;
    incomplete.onAdded = (each) => this.#turnLost(each);
  }

  async load(nowMs: number): Promise<void> {
    const groups = await this.#load('groups', (_, json) => JSON.parse(json) as Group);
    for (const group of groups.toSorted((a, b) => a.id - b.id)) this.#index(group);
    const versions = await this.#load('versions', (name, at) => [JSON.parse(at) as number, name] as const);
    for (const [, name] of versions.toSorted(([a], [b]) => a - b)) this.versions.add(name);
    const counts = await this.#records.get(this.#table('state'), 'counts');
    const [known] = this.#read(
      'state',
      counts === null ? [] : [['counts', counts]],
      (_, json) => JSON.parse(json) as Counts,
    );
    this.counts = { ...newCounts(), ...known };
    const late = await this.#load('late', (key, json) => [key, JSON.parse(json) as Latecomers] as const);
    for (const [key, each] of late.toSorted(([, a], [, b]) => a.untilMs - b.untilMs)) this.#late.set(key, each);
    if (this.damaged.length > 0) this.#recount();
    for (const each of this.#incomplete.all()) this.#turnLost(each);
    await this.prune(nowMs);
  }

  async #load<T>(table: string, read: (key: string, value: string) => T): Promise<T[]> {
    return this.#read(table, await this.#records.all(this.#table(table)), read);
  }

  /** Leaves out damaged records, and removes them. */
  #read<T>(table: string, records: Records, read: (key: string, value: string) => T): T[] {
    const name = (key: string): string => `${key} of ${this.#table(table)}`;
    return readRecords(
      records,
      ([key, value]) => readRecord(name(key), () => read(key, value)),
      ([key]) => {
        this.damaged.push(name(key));
        this.#change(table, key, null);
      },
    );
  }

  /** Counts the groups of damaged records, and their members, as failed; with damaged counts what is pending is all that is known. */
  #recount(): void {
    const { counts, groups } = this;
    let members = 0;
    for (const group of groups.values()) {
      members += group.members.length;
      counts.lastId = Math.max(counts.lastId, group.id, group.position);
    }
    const lostGroups = counts.groups - groups.size - counts.acked - sumOf(counts.droppedGroups);
    if (lostGroups > 0) counts.droppedGroups.failed = (counts.droppedGroups.failed ?? 0) + lostGroups;
    else counts.groups -= lostGroups;
    const lostMembers = counts.members - members - counts.ackedMembers - sumOf(counts.droppedMembers);
    if (lostMembers > 0) counts.droppedMembers.failed = (counts.droppedMembers.failed ?? 0) + lostMembers;
    else counts.members -= lostMembers;
    this.counted();
  }

  /** Forgets sessions that do not come any more, and what became of groups long ago. */
  async prune(nowMs: number): Promise<void> {
    for (const [key, { untilMs }] of this.#late) {
      if (untilMs > nowMs) break;
      this.#setLate(key, null);
    }
    if (nowMs < this.#pruneAtMs) return;
    this.#pruneAtMs = nowMs + PRUNE_EVERY_MS;
    for (const table of ['past', 'acks']) await this.#records.prune(this.#table(table), nowMs - PAST_MS);
  }

  /** Larger than all numbers before. Its beginning is the time, so that another file of the feed does not have the same ones. */
  nextId(nowMs: number): number {
    this.counted();
    return (this.counts.lastId = Math.max(this.counts.lastId + 1, nowMs * 1_000));
  }

  begin(tenant: string, name: string, size: number, nowMs: number): Group {
    const group: Group = {
      id: this.nextId(nowMs),
      tenant,
      name,
      size,
      beganMs: nowMs,
      members: [],
      state: 'open',
      because: null,
      position: 0,
      readyMs: 0,
      deliveries: 0,
      lease: null,
    };
    this.#index(group);
    this.counts.groups++;
    this.save(group);
    return group;
  }

  join(group: Group, session: string, nowMs: number): Member {
    const member = newMember(session, nowMs, this.#incomplete.has({ session, tenant: group.tenant }));
    group.members.push(member);
    this.#indexMember(group, session);
    this.counts.members++;
    this.save(group);
    return member;
  }

  newestNamed(tenant: string, name: string): Group | null {
    return this.#newest.get(tenantKey(tenant, name)) ?? null;
  }

  /** The groups that the session is in: one for each tenant that has it. */
  groupsOf(session: string, tenant: string | undefined): readonly Group[] {
    const groups = this.#bySession.get(session) ?? [];
    return tenant === undefined ? groups : groups.filter((group) => group.tenant === tenant);
  }

  /** A group that is not waiting any longer takes its place among the sessions that may still come. @returns whether it did; null: there is none */
  latecomer(tenant: string, name: string, nowMs: number): Latecomers | null {
    const key = tenantKey(tenant, name);
    const late = this.#late.get(key);
    if (late === undefined) return null;
    if (late.untilMs <= nowMs) {
      this.#setLate(key, null);
      return null;
    }
    late.left--;
    this.#setLate(key, late.left > 0 ? late : null);
    return late;
  }

  /** The group waits for no member any longer. */
  closed(group: Group, isCancelled: boolean, nowMs: number): void {
    this.open.delete(group);
    const left = group.size - group.members.length;
    if (left <= 0) return;
    const key = tenantKey(group.tenant, group.name);
    // It gets the last place.
    this.#late.delete(key);
    this.#setLate(key, { left, isCancelled, untilMs: nowMs + LATECOMERS_MS });
  }

  /** Removes a group that is acked or dropped. @param reason null: it was delivered */
  remove(group: Group, reason: DropReason | null): void {
    const { counts } = this;
    if (this.groups.delete(group.id)) this.perTenant.add(group.tenant, -1);
    this.open.delete(group);
    const key = tenantKey(group.tenant, group.name);
    if (this.#newest.get(key) === group) this.#newest.delete(key);
    this.#unsaved.delete(group);
    this.#change('groups', String(group.id), null);
    if (reason === null) counts.acked++;
    else counts.droppedGroups[reason] = (counts.droppedGroups[reason] ?? 0) + 1;
    for (const { session, dropped, state, rewards } of group.members) {
      const why = dropped ?? reason;
      if (why === null) counts.ackedMembers++;
      else this.dropMember(why);
      const left = (this.#bySession.get(session) ?? []).filter((other) => other !== group);
      if (left.length > 0) this.#bySession.set(session, left);
      else this.#bySession.delete(session);
      this.setPast(session, group.tenant, { isCancelled: state === 'cancelled', isDelivered: why === null, rewards });
      if (rewards.hasDetails) this.#change('rewards', tenantKey(group.tenant, session), null);
    }
    this.counted();
  }

  dropMember(why: DropReason): void {
    this.counts.droppedMembers[why] = (this.counts.droppedMembers[why] ?? 0) + 1;
    this.counted();
  }

  /** @returns null: the session is in no group that is over */
  async pastOf(session: string, tenant: string): Promise<Past | null> {
    const json = await this.#get('past', tenantKey(tenant, session));
    return json === null ? null : readRecord(`session ${session} in the feed`, () => JSON.parse(json) as Past);
  }

  setPast(session: string, tenant: string, past: Past): void {
    this.#change('past', tenantKey(tenant, session), JSON.stringify(past));
  }

  addVersion(name: string, nowMs: number): void {
    if (this.versions.add(name)) this.#change('versions', name, String(this.nextId(nowMs)));
  }

  async detailsOf({ session, rewards }: Member, tenant: string): Promise<RewardDetails> {
    if (!rewards.hasDetails) return NO_DETAILS;
    const json = await this.#get('rewards', tenantKey(tenant, session));
    if (json === null) return NO_DETAILS;
    return readRecord(`the rewards of session ${session}`, () => JSON.parse(json) as RewardDetails);
  }

  setDetails({ session }: Member, tenant: string, details: RewardDetails): void {
    this.#change('rewards', tenantKey(tenant, session), JSON.stringify(details));
  }

  acked(lease: string): void {
    this.#change('acks', lease, '');
  }

  async wasAcked(lease: string): Promise<boolean> {
    return (await this.#get('acks', lease)) !== null;
  }

  /** The group has changed. */
  save(group: Group): void {
    this.#unsaved.add(group);
    this.counted();
  }

  counted(): void {
    this.#areCounted = false;
  }

  /**
   * Writes what has changed. Changes that a store does not take are written with the next ones. There is one write at a time, so that
   * one whose answer is late brings back nothing that was changed later.
   */
  flush(nowMs: number): Promise<void> {
    if (this.#nextFlush !== null) return this.#nextFlush;
    const flush = this.#flushed.then(() => {
      this.#nextFlush = null;
      return this.#write(nowMs);
    });
    this.#nextFlush = flush;
    this.#flushed = flush.catch(() => {});
    return flush;
  }

  async #write(nowMs: number): Promise<void> {
    for (const group of this.#unsaved) this.#change('groups', String(group.id), JSON.stringify(group));
    this.#unsaved.clear();
    if (!this.#areCounted) this.#change('state', 'counts', JSON.stringify(this.counts));
    this.#areCounted = true;
    if (this.#changes.size === 0) return;
    const changes = this.#changes;
    this.#changes = new Map();
    this.#inWrite = changes;
    try {
      await this.#records.write([...changes.values()], nowMs);
    } catch (error) {
      this.#changes = new Map([...changes, ...this.#changes]);
      throw error;
    } finally {
      this.#inWrite = new Map();
    }
  }

  #turnLost({ session, tenant }: ChatName): void {
    for (const group of this.groupsOf(session, tenant)) {
      memberOf(group, session).isIncomplete = true;
      this.save(group);
    }
  }

  #setLate(key: string, late: Latecomers | null): void {
    if (late === null) this.#late.delete(key);
    else this.#late.set(key, late);
    this.#change('late', key, late === null ? null : JSON.stringify(late));
  }

  #index(group: Group): void {
    this.groups.set(group.id, group);
    this.perTenant.add(group.tenant, 1);
    if (group.state === 'open') this.open.add(group);
    this.#newest.set(tenantKey(group.tenant, group.name), group);
    for (const { session } of group.members) this.#indexMember(group, session);
  }

  #indexMember(group: Group, session: string): void {
    const groups = this.#bySession.get(session);
    if (groups === undefined) this.#bySession.set(session, [group]);
    else groups.push(group);
  }

  /** Also what is not written yet. */
  async #get(table: string, key: string): Promise<string | null> {
    const name = `${table}\n${key}`;
    const change = this.#changes.get(name) ?? this.#inWrite.get(name);
    return change === undefined ? this.#records.get(this.#table(table), key) : change.value;
  }

  #table(table: string): string {
    return `feed/${this.#name}/${table}`;
  }

  #change(table: string, key: string, value: string | null): void {
    this.#changes.set(`${table}\n${key}`, { table: this.#table(table), key, value });
  }
}

type Records = Awaited<ReturnType<RecordTables['all']>>;

const sumOf = (counts: Readonly<Record<string, number>>): number =>
  Object.values(counts).reduce((sum, count) => sum + count, 0);

const newCounts = (): Counts => ({
  lastId: 0,
  groups: 0,
  members: 0,
  acked: 0,
  ackedMembers: 0,
  deliveries: 0,
  expiredLeases: 0,
  refused: 0,
  taken: 0,
  takenVersion: null,
  droppedGroups: {},
  droppedMembers: {},
});
