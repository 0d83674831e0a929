import type { VersionSpan } from '../../../generation/delta.ts';
import { LinkedList, type ListNode } from '../../../kit/linked-list.ts';
import { SESSION_IDLE_MS } from '../../shared/memory-limit.ts';
import { type OutcomeChange, type SessionOutcome, outcomeAfter, wantsOutcome } from '../../shared/outcome.ts';
import type { SessionName, Turn, TurnAmendment, TurnTexts } from '../../shared/turn.ts';
import { MemoryRecords } from './records.ts';
import { SharedBytes } from './shared-bytes.ts';
import {
  type NewestQuery,
  type SessionHead,
  type SessionQuery,
  type StoreCounts,
  type TrajectoryStore,
  filesOf,
  outlineOf,
  turnBytes,
  wants,
} from './store.ts';
import { tenantKey } from '../../../classify/tenant-key.ts';

/** A turn in memory. Leading tokens that were not sampled have no logprob and no mask. */
interface KeptTurn extends Turn {
  versions: readonly VersionSpan[];
}

interface Session extends SessionHead {
  readonly turns: KeptTurn[];
  outcome: SessionOutcome | null;
  /** When its last turn was put, in ms of the store's clock. */
  putMs: number;
  /** Its place in the order of last write. */
  link: ListNode<Session> | null;
}

const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
const firstsInOrder = (sessions: readonly Session[]): Session[] =>
  sessions.toSorted((a, b) => byText(a.firstTurn, b.firstTurn));
const inOrder = (turns: readonly KeptTurn[]): KeptTurn[] => turns.toSorted((a, b) => byText(a.id, b.id));

/**
 * Turns in memory, up to a number of bytes. Sessions are evicted as a whole, because a part of a trajectory is of no use: first those that
 * are over, then the others; the least recently written first.
 */
export class MemoryStore implements TrajectoryStore {
  readonly place = 'memory';
  readonly records = new MemoryRecords();
  onEvicted: NonNullable<TrajectoryStore['onEvicted']> = () => {};
  readonly #limitBytes: number;
  readonly #byName = new Map<string, Session>();
  /** Ended sessions, in the order of their ends. */
  readonly #ended = new Set<Session>();
  readonly #nowMs: () => number;
  /** In order of last write. */
  readonly #sessions = new LinkedList<Session>();
  /** In the order of their first turns, because lists are read page by page. */
  readonly #byFirst: Session[] = [];
  readonly #turns = new Map<string, KeptTurn>();
  /** All turns sorted by id; null: to be sorted at the next read. */
  #sorted: readonly KeptTurn[] | null = null;
  readonly #held = new SharedBytes(bytesOf);
  #evicted = 0;
  #evictedLive = 0;

  constructor(limitBytes: number, nowMs: () => number = () => performance.now()) {
    this.#limitBytes = limitBytes;
    this.#nowMs = nowMs;
  }

  put(turns: readonly Turn[]): void {
    for (const turn of turns) this.#put(turn);
    this.#sorted = null;
    while (this.#sessions.first !== null && this.#held.bytes > this.#limitBytes) {
      const first = this.#firstToGo(this.#sessions.first.value);
      const { session, tenant, turns } = first;
      this.#evicted += turns.length;
      this.#drop(first);
      this.onEvicted(session, tenant, turns.flatMap(filesOf));
    }
  }

  /** @param oldest the least recently written session */
  #firstToGo(oldest: Session): Session {
    if (this.#nowMs() - oldest.putMs > SESSION_IDLE_MS) return oldest;
    const [ended] = this.#ended;
    if (ended === undefined) this.#evictedLive++;
    return ended ?? oldest;
  }

  amend(amendments: readonly TurnAmendment[]): void {
    for (const { id, versions } of amendments) {
      const kept = this.#turns.get(id);
      if (kept !== undefined) kept.versions = versions;
    }
  }

  get(id: string): Turn | null {
    const kept = this.#turns.get(id);
    return kept === undefined ? null : whole(kept);
  }

  sessions(query: SessionQuery): readonly SessionHead[] {
    const { session, after, limit } = query;
    const sorted = session === undefined ? this.#byFirst : firstsInOrder(this.#named({ ...query, session }));
    const isNewestFirst = query.order === 'newest';
    let i = isNewestFirst ? sorted.length - 1 : 0;
    if (after !== undefined) i = isNewestFirst ? countUpTo(sorted, after, false) - 1 : countUpTo(sorted, after, true);
    const heads: SessionHead[] = [];
    for (; heads.length < limit && i >= 0 && i < sorted.length; i += isNewestFirst ? -1 : 1) {
      const { session: name, tenant, firstTurn, turns, outcome } = sorted[i]!;
      if (!wantsOutcome(query, outcome) || !turns.some((turn) => wants(query, turn))) continue;
      heads.push({ session: name, tenant, firstTurn, outcome });
    }
    return heads;
  }

  finish(name: SessionName, change: OutcomeChange, nowMs: number): number {
    const named = this.#named(name);
    for (const session of named) {
      session.outcome = outcomeAfter(session.outcome, change, nowMs);
      this.#ended.add(session);
    }
    return named.length;
  }

  newest({ before, limit, ...query }: NewestQuery) {
    const turns = this.#among(query).filter(({ id }) => before === undefined || id < before);
    return turns.slice(-limit).toReversed().map(outlineOf);
  }

  removeSession(session: string, tenant?: string): number {
    let removed = 0;
    for (const each of this.#named({ session, tenant })) {
      removed += each.turns.length;
      this.#drop(each);
    }
    return removed;
  }

  counts(): StoreCounts {
    return { turns: this.#turns.size, bytes: this.#held.bytes, evicted: this.#evicted, evictedLive: this.#evictedLive };
  }

  close(): void {}

  #put(turn: Turn): void {
    const { id } = turn;
    const kept = compact(turn);
    const before = this.#turns.get(id);
    const session = this.#sessionOf(kept, before);
    if (before !== undefined) session.turns[session.turns.indexOf(before)] = kept;
    if (before !== undefined) this.#held.release(before);
    this.#held.hold(kept);
    this.#turns.set(id, kept);
    session.putMs = this.#nowMs();
    // A session that continues has not ended.
    this.#ended.delete(session);
    const { last } = this.#sessions;
    if (session.link !== last) this.#sessions.move(session.link!, last);
  }

  /** @param before the turn that it replaces; otherwise it is added */
  #sessionOf(kept: KeptTurn, before: KeptTurn | undefined): Session {
    const { id, session: name, tenant } = kept;
    let session = this.#byName.get(tenantKey(tenant, name));
    if (session === undefined) {
      // A list of one: `push` reserves space for 17.
      const empty = { turns: [kept], outcome: null, putMs: 0, link: null };
      session = { session: name, tenant, firstTurn: id, ...empty };
      this.#byName.set(tenantKey(tenant, name), session);
      session.link = this.#sessions.push(session);
      this.#byFirst.splice(countUpTo(this.#byFirst, id, true), 0, session);
    } else if (before === undefined) session.turns.push(kept);
    return session;
  }

  #drop(session: Session): void {
    const { tenant, turns } = session;
    for (const turn of turns) {
      this.#turns.delete(turn.id);
      this.#held.release(turn);
    }
    this.#byName.delete(tenantKey(tenant, session.session));
    this.#byFirst.splice(countUpTo(this.#byFirst, session.firstTurn, false), 1);
    this.#sessions.remove(session.link!);
    this.#ended.delete(session);
    this.#sorted = null;
  }

  #named({ session, tenant }: SessionName): Session[] {
    if (tenant === undefined) return [...this.#sessions].filter((each) => each.session === session);
    const found = this.#byName.get(tenantKey(tenant, session));
    return found === undefined ? [] : [found];
  }

  /** The turns that a query searches, in the order of their ids: those of a session, or all. */
  #among({ session, tenant }: Pick<NewestQuery, 'session' | 'tenant'>): readonly KeptTurn[] {
    if (session === undefined) return (this.#sorted ??= inOrder([...this.#turns.values()]));
    return inOrder(this.#named({ session, tenant }).flatMap(({ turns }) => turns));
  }
}

/** How many sessions begin before a turn. @param isWith also counts the one that begins with it */
function countUpTo(sorted: readonly Session[], turn: string, isWith: boolean): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const order = byText(sorted[middle]!.firstTurn, turn);
    if (order < 0 || (isWith && order === 0)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The objects of a turn and its places in the store's tables, beside what `turnBytes` counts, as measured on Node 24. */
const TURN_BYTES = 700;

const bytesOf = (kept: KeptTurn): number => TURN_BYTES + turnBytes(kept) + textBytes(kept.texts);

const textBytes = (texts: TurnTexts | undefined): number =>
  texts === undefined ? 0 : 100 + (texts.prompt?.length ?? 0) + (texts.answer?.length ?? 0);

/** Its tokens share one buffer, because V8 counts and collects each buffer. */
function compact(turn: Turn): KeptTurn {
  const { ids, logprobs, mask } = turn;
  const sampled = mask.indexOf(1);
  const most = sampled < 0 ? ids.length : sampled;
  let given = 0;
  while (given < most && logprobs[given] === 0) given++;
  const own = ids.length - given;
  const memory = new ArrayBuffer(9 * own + 4 * ids.length);
  const kept = {
    logprobs: new Float64Array(memory, 0, own),
    ids: new Int32Array(memory, 8 * own, ids.length),
    mask: new Uint8Array(memory, 8 * own + 4 * ids.length, own),
  };
  kept.logprobs.set(logprobs.subarray(given));
  kept.ids.set(ids);
  kept.mask.set(mask.subarray(given));
  // Without a key the session has the id of the turn: one string for both.
  return { ...turn, ...kept, session: turn.session === turn.id ? turn.id : turn.session };
}

/** The turn as it was put; its tokens are copies. */
function whole(kept: KeptTurn): Turn {
  const { length } = kept.ids;
  const logprobs = new Float64Array(length);
  const mask = new Uint8Array(length);
  logprobs.set(kept.logprobs, length - kept.logprobs.length);
  mask.set(kept.mask, length - kept.mask.length);
  return { ...kept, ids: kept.ids.slice(), logprobs, mask };
}
