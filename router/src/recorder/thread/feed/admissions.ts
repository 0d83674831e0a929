import { type FeedEntry, type FeedOptions, type FeedVerdict, pendingLimit } from '../../shared/feed.ts';
import { tenantKey } from '../../shared/tenant-key.ts';
import type { Turn, TurnAmendment } from '../../shared/turn.ts';
import type { Book } from './book.ts';
import { feedNow } from './feed-clock.ts';
import type { Group } from './group.ts';
import { NO_REWARDS } from './rewards.ts';

const CANCELLED = 'Its group does not wait for this session any longer: it had enough members, or its deadline passed.';

/** How sessions come into groups, and which may not. */
export class Admissions {
  readonly #book: Book;
  readonly #options: FeedOptions;
  /** By session. */
  readonly #admitting = new Map<string, Promise<FeedVerdict>>();

  constructor(book: Book, options: FeedOptions) {
    this.#book = book;
    this.#options = options;
  }

  /** What a request with these headers is to the feed. A group begins, or gets a member, by it. */
  admit(entry: FeedEntry, nowMs: number): Promise<FeedVerdict> {
    if (entry.session === '') return this.#admit(entry, nowMs);
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
    const [known] = session === '' ? [] : this.#book.groupsOf(session, tenant);
    if (known !== undefined) {
      const { state } = known.members.find((member) => member.session === session)!;
      return state === 'cancelled' ? { kind: 'cancelled', message: CANCELLED } : { kind: 'admitted', isPast: false };
    }
    // While the store is away, a session that its group did not wait for is not known.
    const past = session === '' ? null : await this.#book.pastOf(session, tenant).catch(() => null);
    if (past?.isCancelled === true) return { kind: 'cancelled', message: CANCELLED };
    if (past !== null || name === '') return { kind: 'admitted', isPast: past !== null };
    const found = this.#groupFor(entry, nowMs);
    if (!('id' in found)) {
      // A session that its group did not wait for is known by its name from now on.
      const isLate = found.kind === 'cancelled' || found.kind === 'admitted';
      const was = { isCancelled: found.kind === 'cancelled', isDelivered: false, rewards: NO_REWARDS };
      if (isLate && session !== '') this.#book.setPast(session, tenant, was);
      await this.#flushed(nowMs);
      return found;
    }
    const isNew = found.members.length === 0;
    if (session !== '' && this.#book.groupsOf(session, tenant).length === 0) this.#book.join(found, session, nowMs);
    // Further members are written with the next change: after a kill their turns tell which group they are in.
    if (isNew) await this.#flushed(nowMs);
    return { kind: 'admitted', isPast: false };
  }

  /** A store that is away delays no request: what is not written stays for the next time. */
  #flushed(nowMs: number): Promise<void> {
    return this.#book.flush(nowMs).catch(() => {});
  }

  /** @returns a group that takes another session, or why there is none */
  #groupFor({ tenant, group: name, size, isAgain }: FeedEntry, nowMs: number): Group | FeedVerdict {
    const group = this.#book.newestNamed(tenant, name);
    if (group?.state === 'open' && group.members.length < group.size) {
      if (size === null || size === group.size) return group;
      const message = `x-turnout-group-size is ${size}, and the group '${name}' began with ${group.size}.`;
      return { kind: 'invalid', message };
    }
    const late = this.#book.latecomer(tenant, name, nowMs);
    if (late !== null) {
      this.#book.counts.members++;
      this.#book.dropMember(late.isCancelled ? 'cancelled' : 'late');
      return late.isCancelled ? { kind: 'cancelled', message: CANCELLED } : { kind: 'admitted', isPast: true };
    }
    const options = this.#options;
    const wanted = size ?? options.groupSize;
    if (wanted === null) {
      const message =
        'The group has no size: send x-turnout-group-size with its requests, or set groupSize of the plugin feed.';
      return { kind: 'invalid', message };
    }
    if (this.#isFull) {
      if (!isAgain) this.#book.counts.refused++;
      return { kind: 'full', message: this.#fullMessage };
    }
    return this.#book.begin(tenant, name, wanted, nowMs);
  }

  get #isFull(): boolean {
    return this.#book.groups.size >= pendingLimit(this.#options);
  }

  get #fullMessage(): string {
    const limit = pendingLimit(this.#options);
    return `${this.#book.groups.size} groups are pending, and ${limit} may be: the trainer has to take groups before another one begins.`;
  }

  /** Begins a group with named sessions, whose requests then need no header. */
  async declare(
    { tenant, name, size, sessions }: { tenant: string; name: string; size: number; sessions: readonly string[] },
    nowMs: number,
  ): Promise<FeedVerdict> {
    const wrong = (message: string): FeedVerdict => ({ kind: 'invalid', message });
    const open = this.#book.newestNamed(tenant, name);
    if (open?.state === 'open' && open.members.length < open.size)
      return wrong(`The group '${name}' waits for ${open.size - open.members.length} sessions already.`);
    if (sessions.length > size) return wrong(`The group has ${sessions.length} sessions and the size ${size}.`);
    const taken = sessions.find((session) => this.#book.groupsOf(session, tenant).length > 0);
    if (taken !== undefined) return wrong(`The session '${taken}' is in a group already.`);
    if (this.#isFull) {
      this.#book.counts.refused++;
      return { kind: 'full', message: this.#fullMessage };
    }
    const group = this.#book.begin(tenant, name, size, nowMs);
    for (const session of sessions) this.#book.join(group, session, nowMs);
    await this.#book.flush(nowMs);
    return { kind: 'admitted', isPast: false };
  }

  /** A turn is on its way to the store. A session whose key is in the body joins its group by it. */
  turnPut(turn: Turn | TurnAmendment): void {
    const nowMs = feedNow();
    for (const { version } of turn.versions) if (version !== null) this.#book.addVersion(version, nowMs);
    if (!('session' in turn)) return;
    const { session, tenant, group: name } = turn;
    if (name === '' || this.#book.groupsOf(session, tenant).length > 0) return;
    const group = this.#book.newestNamed(tenant, name);
    if (group?.state === 'open' && group.members.length < group.size) this.#book.join(group, session, nowMs);
  }
}
