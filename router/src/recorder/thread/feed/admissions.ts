import { type FeedEntry, type FeedOptions, type FeedVerdict, MAX_PENDING, chosenLimit } from '../../shared/feed.ts';
import { tenantKey } from '../../../classify/tenant-key.ts';
import type { ChatName, Turn, TurnAmendment } from '../../shared/turn.ts';
import { AnnouncedGroups } from './announced.ts';
import type { Book, Past } from './book.ts';
import { feedNow } from './feed-clock.ts';
import { type Group, memberOf } from './group.ts';
import { NO_REWARDS } from './rewards.ts';

const CANCELLED = 'Its group does not wait for this session any longer: it had enough members, or its deadline passed.';

/** How sessions come into groups, and which may not. */
export class Admissions {
  readonly #book: Book;
  readonly #options: FeedOptions;
  /** By session. */
  readonly #admitting = new Map<string, Promise<FeedVerdict>>();
  /** Sessions that may join a group by their turns: the last try of each. */
  readonly #joining = new Map<string, Promise<void>>();
  readonly #announced = new AnnouncedGroups();
  readonly #recorded: () => Promise<unknown>;
  readonly #onCancelled: (name: ChatName) => void;

  /**
   * @param recorded resolves when the turns that ended before the call are known
   * @param onCancelled a session goes on that its group does not wait for, and only its turn tells which it is
   */
  constructor(
    book: Book,
    options: FeedOptions,
    recorded: () => Promise<unknown>,
    onCancelled: (name: ChatName) => void,
  ) {
    this.#book = book;
    this.#options = options;
    this.#recorded = recorded;
    this.#onCancelled = onCancelled;
  }

  /** What a request with these headers is to the feed. A group begins, or gets a member, by it. */
  admit(entry: FeedEntry, nowMs: number): Promise<FeedVerdict> {
    if (entry.session === '') return Promise.resolve(this.#announce(entry, nowMs));
    // The first requests of a session may come at once: it joins one group, once.
    const key = tenantKey(entry.tenant, entry.session);
    let verdict = this.#admitting.get(key);
    if (verdict === undefined) {
      verdict = this.#admit(entry, nowMs).finally(() => this.#admitting.delete(key));
      this.#admitting.set(key, verdict);
    }
    return verdict;
  }

  async #admit(entry: FeedEntry, nowMs: number): Promise<FeedVerdict> {
    const { tenant, session, group: name } = entry;
    const [known] = this.#book.groupsOf(session, tenant);
    if (known !== undefined) {
      const { state } = memberOf(known, session);
      return state === 'cancelled' ? { kind: 'cancelled', message: CANCELLED } : { kind: 'admitted', isPast: false };
    }
    const past = await this.#pastOf(session, tenant);
    if (past?.isCancelled === true) return { kind: 'cancelled', message: CANCELLED };
    if (past !== null || name === '') return { kind: 'admitted', isPast: past !== null };
    const found = this.#groupFor(entry, nowMs);
    if (!('id' in found)) {
      await this.#flushed(nowMs);
      return found;
    }
    const isNew = found.members.length === 0;
    if (this.#book.groupsOf(session, tenant).length === 0) this.#book.join(found, session, nowMs);
    // Further members are written with the next change: after a kill their turns tell which group they are in.
    if (isNew) await this.#flushed(nowMs);
    return { kind: 'admitted', isPast: false };
  }

  /** A request whose session key, if it has one, is in the body: it may be a later one of any session of the group. */
  #announce({ tenant, group: name, size, isAgain }: FeedEntry, nowMs: number): FeedVerdict {
    const admitted: FeedVerdict = { kind: 'admitted', isPast: false };
    if (name === '') return admitted;
    const key = tenantKey(tenant, name);
    const group = this.#book.newestNamed(tenant, name);
    if (group !== null && isWaiting(group)) return wrongSize(group, size) ?? admitted;
    const wanted = size ?? group?.size ?? this.#options.groupSize;
    if (wanted === null) return NO_SIZE;
    if (group === null) {
      if (!this.#announced.hasPlace(key) && this.#isFull(tenant, nowMs)) return this.#full(tenant, isAgain);
      this.#announced.keepPlace(tenant, name, nowMs);
    }
    this.#announced.announce(key, wanted);
    return admitted;
  }

  /** No request that announced the group is in flight any more: if none of them left a turn, the group does not begin. */
  async notBegun(tenant: string, name: string): Promise<void> {
    const key = tenantKey(tenant, name);
    const place = this.#announced.placeOf(key);
    if (place === null) return;
    await this.#recorded();
    await Promise.all(this.#joining.values());
    // Another request may have announced it meanwhile.
    if (this.#announced.placeOf(key) === place) this.#announced.freePlace(key);
  }

  /** While the store is away, a session that its group did not wait for is not known. */
  #pastOf(session: string, tenant: string): Promise<Past | null> {
    return this.#book.pastOf(session, tenant).catch(() => null);
  }

  /** A store that is away delays no request: what is not written stays for the next time. */
  #flushed(nowMs: number): Promise<void> {
    return this.#book.flush(nowMs).catch(() => {});
  }

  /** @returns a group that takes another session, or why there is none */
  #groupFor({ tenant, session, group: name, size, isAgain }: FeedEntry, nowMs: number): Group | FeedVerdict {
    const group = this.#book.newestNamed(tenant, name);
    if (group !== null && isWaiting(group)) return wrongSize(group, size) ?? group;
    const late = this.#latecomer({ session, tenant }, name, nowMs);
    if (late !== null)
      return late.isCancelled ? { kind: 'cancelled', message: CANCELLED } : { kind: 'admitted', isPast: true };
    const wanted = size ?? this.#options.groupSize;
    if (wanted === null) return NO_SIZE;
    const hasPlace = this.#announced.hasPlace(tenantKey(tenant, name));
    if (!hasPlace && this.#isFull(tenant, nowMs)) return this.#full(tenant, isAgain);
    return this.#begin(tenant, name, wanted, nowMs);
  }

  /** Whether the session comes too late for the group of that name. It is known by its own name from now on. */
  #latecomer({ session, tenant }: ChatName, name: string, nowMs: number): Pick<Past, 'isCancelled'> | null {
    const late = this.#book.latecomer(tenant, name, nowMs);
    if (late === null) return null;
    const { isCancelled } = late;
    this.#book.counts.members++;
    this.#book.dropMember(isCancelled ? 'cancelled' : 'late');
    this.#book.setPast(session, tenant, { isCancelled, isDelivered: false, rewards: NO_REWARDS });
    return late;
  }

  #begin(tenant: string, name: string, size: number, nowMs: number): Group {
    this.#announced.freePlace(tenantKey(tenant, name));
    return this.#book.begin(tenant, name, size, nowMs);
  }

  /** A limit of the options is for each tenant: its trainer gets no groups of others, and would make no room for it. */
  #room(tenant: string, nowMs: number): { readonly pending: number; readonly limit: number } {
    const { groups, perTenant } = this.#book;
    const limit = chosenLimit(this.#options);
    return limit === null
      ? { pending: groups.size + this.#announced.places(null, nowMs), limit: MAX_PENDING }
      : { pending: perTenant.of(tenant) + this.#announced.places(tenant, nowMs), limit };
  }

  #isFull(tenant: string, nowMs: number): boolean {
    const { pending, limit } = this.#room(tenant, nowMs);
    return pending >= limit;
  }

  /** Tenants with pending groups that may begin no other one. */
  full(nowMs: number): string[] {
    return [...this.#book.perTenant.names()].filter((tenant) => this.#isFull(tenant, nowMs));
  }

  #full(tenant: string, isAgain: boolean): FeedVerdict {
    if (!isAgain) this.#book.counts.refused++;
    const { pending, limit } = this.#room(tenant, feedNow());
    const whose = tenant === '' || chosenLimit(this.#options) === null ? '' : ' of this API key';
    const message = `${pending} groups${whose} are pending, and ${limit} may be: the trainer has to take groups before another one begins.`;
    return { kind: 'full', message };
  }

  /** Begins a group with named sessions, whose requests then need no header. */
  async declare(
    { tenant, name, size, sessions }: { tenant: string; name: string; size: number; sessions: readonly string[] },
    nowMs: number,
  ): Promise<FeedVerdict> {
    const wrong = (message: string): FeedVerdict => ({ kind: 'invalid', message });
    const pasts = await Promise.all(sessions.map((session) => this.#pastOf(session, tenant)));
    const over = pasts.findIndex((past) => past !== null);
    if (over >= 0)
      return wrong(`The session '${sessions[over]}' was in a group that is over: names of sessions must not repeat.`);
    const open = this.#book.newestNamed(tenant, name);
    if (open?.state === 'open' && open.members.length < open.size)
      return wrong(`The group '${name}' waits for ${open.size - open.members.length} sessions already.`);
    if (sessions.length > size) return wrong(`The group has ${sessions.length} sessions and the size ${size}.`);
    const taken = sessions.find((session) => this.#book.groupsOf(session, tenant).length > 0);
    if (taken !== undefined) return wrong(`The session '${taken}' is in a group already.`);
    if (this.#isFull(tenant, nowMs)) return this.#full(tenant, false);
    const group = this.#begin(tenant, name, size, nowMs);
    for (const session of sessions) this.#book.join(group, session, nowMs);
    await this.#flushed(nowMs);
    return { kind: 'admitted', isPast: false };
  }

  /** A turn is on its way to the store. A session whose key is in the body joins its group by it. */
  turnPut(turn: Turn | TurnAmendment): void {
    const nowMs = feedNow();
    for (const { version } of turn.versions) if (version !== null) this.#book.addVersion(version, nowMs);
    if (!('session' in turn)) return;
    const { session, tenant } = turn;
    if (turn.group === '' || this.#book.groupsOf(session, tenant).length > 0) return;
    const before = this.#joining.get(session);
    const joining = (async () => {
      await before;
      await this.#join(turn);
    })();
    this.#joining.set(session, joining);
    void joining.then(() => {
      if (this.#joining.get(session) === joining) this.#joining.delete(session);
    });
  }

  /** Resolves when the session is in the group of its turns. */
  async joined(session: string): Promise<void> {
    await this.#joining.get(session);
  }

  async #join({ session, tenant, group: name }: Turn): Promise<void> {
    const past = await this.#pastOf(session, tenant);
    const nowMs = feedNow();
    const key = tenantKey(tenant, name);
    if (past !== null) return this.#announced.freePlace(key);
    if (this.#book.groupsOf(session, tenant).length > 0) return;
    const group = this.#book.newestNamed(tenant, name);
    if (group !== null && isWaiting(group)) {
      this.#book.join(group, session, nowMs);
      return;
    }
    const late = this.#latecomer({ session, tenant }, name, nowMs);
    if (late !== null) {
      this.#announced.freePlace(key);
      if (late.isCancelled) this.#onCancelled({ session, tenant });
      return;
    }
    const size = this.#announced.sizeOf(key) ?? group?.size ?? this.#options.groupSize;
    if (size === null) return;
    this.#book.join(this.#begin(tenant, name, size, nowMs), session, nowMs);
    void this.#flushed(nowMs);
  }
}

const isWaiting = ({ state, members, size }: Group): boolean => state === 'open' && members.length < size;

const NO_SIZE: FeedVerdict = {
  kind: 'invalid',
  message: 'The group has no size: send x-turnout-group-size with its requests, or set groupSize of the plugin feed.',
};

/** @param size as the request says it; null: it does not */
function wrongSize(group: Group, size: number | null): FeedVerdict | null {
  if (size === null || size === group.size) return null;
  const message = `x-turnout-group-size is ${size}, and the group '${group.name}' began with ${group.size}.`;
  return { kind: 'invalid', message };
}
