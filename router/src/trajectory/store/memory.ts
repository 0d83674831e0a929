import { PackedMemory } from '../../kit/packed-memory.ts';
import { SESSION_IDLE_MS } from '../memory-limit.ts';
import { type OutcomeChange, type SessionOutcome, outcomeAfter, wantsOutcome } from '../outcome.ts';
import type { SessionName, Turn, TurnAmendment, TurnQuery } from '../turn.ts';
import { KeptTurn } from './kept-turn.ts';
import {
  type NewestQuery,
  type SessionHead,
  type SessionQuery,
  type StoreCounts,
  type TrajectoryStore,
  filesOf,
  wants,
} from './store.ts';

interface Session extends SessionHead {
  readonly turns: KeptTurn[];
  outcome: SessionOutcome | null;
  bytes: number;
  /** When its last turn was put, in ms of the clock that the store was given. */
  putMs: number;
  /** In the order of their last writes. */
  newer: Session | null;
  older: Session | null;
}

const byText = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
const inOrder = (turns: readonly KeptTurn[]): KeptTurn[] => turns.toSorted((a, b) => byText(a.id, b.id));

/**
 * Turns in memory, up to a number of bytes. What has to go goes by session, as part of a trajectory is of no use: first sessions that
 * are over, then the others; of both, the session that was written to longest ago.
 */
export class MemoryStore implements TrajectoryStore {
  readonly place = 'memory';
  readonly copies: boolean = true;
  onEvicted: NonNullable<TrajectoryStore['onEvicted']> = () => {};
  readonly #limitBytes: number;
  readonly #memory = new PackedMemory();
  /** By tenant, then by session key. */
  readonly #tenants = new Map<string, Map<string, Session>>();
  /** Sessions that have ended, in the order of their ends. */
  readonly #ended = new Set<Session>();
  readonly #nowMs: () => number;
  #oldest: Session | null = null;
  #newest: Session | null = null;
  readonly #turns = new Map<string, KeptTurn>();
  /** All turns in the order of their ids; null: to be sorted anew when somebody asks. */
  #sorted: readonly KeptTurn[] | null = null;
  #bytes = 0;
  #evicted = 0;
  #evictedLive = 0;

  constructor(limitBytes: number, nowMs: () => number = () => performance.now()) {
    this.#limitBytes = limitBytes;
    this.#nowMs = nowMs;
  }

  put(turns: readonly Turn[]): void {
    for (const turn of turns) this.#put(turn);
    this.#sorted = null;
    while (this.#oldest !== null && this.#bytes > this.#limitBytes) {
      const first = this.#firstToGo(this.#oldest);
      const { session, tenant, turns } = first;
      this.#evicted += turns.length;
      this.#drop(first);
      this.onEvicted(session, tenant, turns.flatMap(filesOf));
    }
  }

  /** @param oldest the session that was written to longest ago */
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
    return this.#turns.get(id)?.turn() ?? null;
  }

  find(query: TurnQuery): readonly Turn[] {
    const { after, limit } = query;
    const found: Turn[] = [];
    for (const kept of this.#among(query)) {
      if (found.length >= limit) break;
      if ((after === undefined || kept.id > after) && wants(query, kept)) found.push(kept.turn());
    }
    return found;
  }

  sessions(query: SessionQuery): readonly SessionHead[] {
    const { after, limit } = query;
    const heads: SessionHead[] = [];
    for (const { session, tenant, firstTurn, turns, outcome } of this.#all()) {
      const isWanted = (after === undefined || firstTurn > after) && wantsOutcome(query, outcome);
      if (isWanted && turns.some((turn) => wants(query, turn))) heads.push({ session, tenant, firstTurn, outcome });
    }
    return heads.toSorted((a, b) => byText(a.firstTurn, b.firstTurn)).slice(0, limit);
  }

  outlines(session: string, tenant?: string) {
    return this.#among(tenant === undefined ? { session } : { session, tenant }).map((turn) => turn.outline());
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
    return turns
      .slice(-limit)
      .toReversed()
      .map((turn) => turn.outline());
  }

  removeSession(session: string, tenant?: string): number {
    let removed = 0;
    for (const each of this.#named(tenant === undefined ? { session } : { session, tenant })) {
      removed += each.turns.length;
      this.#drop(each);
    }
    return removed;
  }

  counts(): StoreCounts {
    return { turns: this.#turns.size, bytes: this.#bytes, evicted: this.#evicted, evictedLive: this.#evictedLive };
  }

  close(): void {}

  #put(turn: Turn): void {
    const { id } = turn;
    const kept = new KeptTurn(turn, this.#memory);
    const before = this.#turns.get(id);
    const session = this.#sessionOf(kept, before);
    if (before !== undefined) {
      session.turns[session.turns.indexOf(before)] = kept;
      this.#memory.free(before);
    }
    const bytes = kept.bytes - (before?.bytes ?? 0);
    session.bytes += bytes;
    this.#bytes += bytes;
    this.#turns.set(id, kept);
    session.putMs = this.#nowMs();
    // A session that goes on has not ended.
    this.#ended.delete(session);
    if (session !== this.#newest) {
      this.#unlink(session);
      this.#append(session);
    }
  }

  /** @param before what it stands in place of, if anything; otherwise it is added there */
  #sessionOf(kept: KeptTurn, before: KeptTurn | undefined): Session {
    const { id, session: name, tenant } = kept;
    let sessions = this.#tenants.get(tenant);
    if (sessions === undefined) this.#tenants.set(tenant, (sessions = new Map()));
    let session = sessions.get(name);
    if (session === undefined) {
      // Of one: `push` makes room for 17.
      session = {
        session: name,
        tenant,
        firstTurn: id,
        turns: [kept],
        outcome: null,
        bytes: 0,
        putMs: 0,
        newer: null,
        older: null,
      };
      sessions.set(name, session);
      this.#append(session);
    } else if (before === undefined) session.turns.push(kept);
    return session;
  }

  #drop(session: Session): void {
    const { tenant, turns, bytes } = session;
    for (const turn of turns) {
      this.#turns.delete(turn.id);
      this.#memory.free(turn);
    }
    const sessions = this.#tenants.get(tenant)!;
    sessions.delete(session.session);
    if (sessions.size === 0) this.#tenants.delete(tenant);
    this.#unlink(session);
    this.#ended.delete(session);
    this.#bytes -= bytes;
    this.#sorted = null;
  }

  #append(session: Session): void {
    session.older = this.#newest;
    if (this.#newest === null) this.#oldest = session;
    else this.#newest.newer = session;
    this.#newest = session;
  }

  #unlink(session: Session): void {
    const { newer, older } = session;
    if (older === null) this.#oldest = newer;
    else older.newer = newer;
    if (newer === null) this.#newest = older;
    else newer.older = older;
    session.newer = null;
    session.older = null;
  }

  #named({ session, tenant }: SessionName): Session[] {
    const tenants = tenant === undefined ? [...this.#tenants.values()] : [this.#tenants.get(tenant)];
    return tenants.flatMap((sessions) => sessions?.get(session) ?? []);
  }

  *#all(): Iterable<Session> {
    for (let session = this.#oldest; session !== null; session = session.newer) yield session;
  }

  /** Those among which a query finds its turns, in the order of their ids: a session's, or all. */
  #among({ session, tenant }: Pick<TurnQuery, 'session' | 'tenant'>): readonly KeptTurn[] {
    if (session === undefined) return (this.#sorted ??= inOrder([...this.#turns.values()]));
    return inOrder(this.#named(tenant === undefined ? { session } : { session, tenant }).flatMap(({ turns }) => turns));
  }
}
