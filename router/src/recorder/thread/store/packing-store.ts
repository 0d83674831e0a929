import type { OutcomeChange } from '../../shared/outcome.ts';
import type { SessionName, Turn, TurnAmendment } from '../../shared/turn.ts';
import { type Base, type Packed, MAX_LINE, packed, readPacked, unpacked } from './packed-body.ts';
import type { RecordTables } from './records.ts';
import type { SessionQuery, TrajectoryStore } from './store.ts';
import { tenantKey } from '../../../classify/tenant-key.ts';

type Body = NonNullable<Turn['unreadable']>[number];

/**
 * Wraps a store: requests and responses are compressed, and what the request of the previous turn has already is not stored
 * again. Callers put and get complete turns.
 */
export class PackingStore implements TrajectoryStore {
  onEvicted: NonNullable<TrajectoryStore['onEvicted']> = () => {};
  readonly #inner: TrajectoryStore;
  readonly #recent = new RecentBodies();
  /** The last turn that was put, with its stored response. */
  #last: { readonly turn: Turn; readonly answer: Uint8Array | null } | null = null;

  constructor(inner: TrajectoryStore) {
    this.#inner = inner;
    inner.onEvicted = (session, tenant, experts) => {
      this.#recent.forget(session, tenant);
      this.onEvicted(session, tenant, experts);
    };
  }

  get records(): RecordTables {
    return this.#inner.records;
  }

  get place(): string {
    return this.#inner.place;
  }

  async put(turns: readonly Turn[]): Promise<void> {
    try {
      const made: Turn[] = [];
      for (const turn of turns) made.push(await this.#packed(turn));
      await this.#inner.put(made);
    } catch (error) {
      // A turn that was not stored can't be a base.
      for (const { session, tenant } of turns) this.#recent.forget(session, tenant);
      throw error;
    }
  }

  amend(amendments: readonly TurnAmendment[]) {
    return this.#inner.amend(amendments);
  }

  async get(id: string, needsBodies = true): Promise<Turn | null> {
    const turn = await this.#inner.get(id);
    if (turn === null) return null;
    return needsBodies || turn.isExact === false ? this.#whole(turn) : { ...turn, request: null, answer: null };
  }

  sessions(query: SessionQuery) {
    return this.#inner.sessions(query);
  }

  newest(...args: Parameters<TrajectoryStore['newest']>) {
    return this.#inner.newest(...args);
  }

  finish(name: SessionName, change: OutcomeChange, nowMs: number) {
    return this.#inner.finish(name, change, nowMs);
  }

  removeSession(session: string, tenant?: string) {
    this.#recent.forget(session, tenant);
    return this.#inner.removeSession(session, tenant);
  }

  counts() {
    return this.#inner.counts();
  }

  close() {
    return this.#inner.close();
  }

  async #packed(turn: Turn): Promise<Turn> {
    const { request, answer } = turn;
    if (request === null && answer === null) return turn;
    const last = this.#last;
    // The turns of several choices share a request and a response.
    const isSibling = last !== null && last.turn.id !== turn.id && isOfOneRequest(last.turn, turn);
    const packedAnswer =
      answer === null ? null : isSibling && last.turn.answer === answer ? last.answer : packed(answer, null);
    this.#last = { turn, answer: packedAnswer };
    if (request === null) return { ...turn, answer: packedAnswer };
    const before = isSibling && last.turn.id < turn.id ? last.turn.id : turn.parent;
    // Only an earlier turn can be a base, also when a turn is put again: no base leads back to its own turn.
    const isEarlier = before !== null && before < turn.id;
    const base = isEarlier
      ? (this.#recent.get(turn, before) ?? (await this.#requestOf(await this.#stored(turn, before))))
      : null;
    const made = packed(request, base);
    this.#recent.add(turn, { id: turn.id, depth: readPacked(made)?.depth ?? 0, body: request });
    return { ...turn, request: made, answer: packedAnswer };
  }

  /** A turn of the same session. One of another session can't be a base, because it is removed on its own. */
  async #stored({ session, tenant }: Turn, id: string): Promise<Turn | null> {
    const stored = await this.#inner.get(id);
    return stored?.session === session && stored.tenant === tenant ? stored : null;
  }

  async #whole(turn: Turn): Promise<Turn> {
    const { request, answer } = turn;
    const known = answer === null ? null : readPacked(answer);
    const read = {
      request: (await this.#requestOf(turn))?.body ?? null,
      answer: known === null ? answer : unpacked(known, null),
    };
    const unreadable: Body[] = [];
    if (request !== null && read.request === null) unreadable.push('request');
    if (answer !== null && read.answer === null) unreadable.push('answer');
    return { ...turn, ...read, ...(unreadable.length === 0 ? {} : { unreadable }) };
  }

  /** @returns null: it has none, or its base was removed, or its bases lead back to it, as in stores of earlier releases */
  async #requestOf(turn: Turn | null): Promise<Base | null> {
    // From the turn to its last base: what is unpacked with the one that follows.
    const line = new Map<string, Packed>();
    let base: Base | null = null;
    for (let next = turn; base === null;) {
      if (next === null || next.request === null) return null;
      const known = readPacked(next.request);
      if (known === null) {
        base = { id: next.id, depth: 0, body: next.request };
        break;
      }
      line.set(next.id, known);
      if (known.base === '') break;
      if (line.has(known.base) || line.size >= MAX_LINE) return null;
      base = this.#recent.get(next, known.base);
      if (base === null) next = await this.#stored(next, known.base);
    }
    for (const [id, known] of [...line].toReversed()) {
      const body = unpacked(known, base?.body ?? null);
      if (body === null) return null;
      base = { id, depth: known.depth, body };
    }
    if (line.size > 0) this.#recent.add(turn!, base!);
    return base;
  }
}

const isOfOneRequest = (a: Turn, b: Turn): boolean =>
  a.session === b.session && a.tenant === b.tenant && a.request === b.request;

const MAX_BYTES = 33_554_432;
/** How many bodies of a session are kept. */
const MAX_OF_SESSION = 3;

interface Bodies {
  readonly byId: Map<string, Base>;
  bytes: number;
}

/** The most recently stored or read requests of sessions, which the next ones usually extend. */
class RecentBodies {
  readonly #sessions = new Map<string, Bodies>();
  #bytes = 0;

  get({ session, tenant = '' }: SessionName, id: string): Base | null {
    return this.#sessions.get(tenantKey(tenant, session))?.byId.get(id) ?? null;
  }

  add({ session, tenant = '' }: SessionName, base: Base): void {
    const name = tenantKey(tenant, session);
    const bodies = this.#sessions.get(name) ?? { byId: new Map<string, Base>(), bytes: 0 };
    this.#remove(name);
    bodies.bytes -= bodies.byId.get(base.id)?.body.length ?? 0;
    bodies.byId.delete(base.id);
    bodies.byId.set(base.id, base);
    bodies.bytes += base.body.length;
    if (bodies.byId.size > MAX_OF_SESSION) {
      const [oldest] = bodies.byId;
      bodies.byId.delete(oldest![0]);
      bodies.bytes -= oldest![1].body.length;
    }
    this.#sessions.set(name, bodies);
    this.#bytes += bodies.bytes;
    for (const each of this.#sessions.keys()) {
      if (this.#bytes <= MAX_BYTES) return;
      this.#remove(each);
    }
  }

  /** @param tenant undefined: of all tenants */
  forget(session: string, tenant: string | undefined): void {
    if (tenant !== undefined) this.#remove(tenantKey(tenant, session));
    else for (const name of this.#sessions.keys()) if (name.endsWith(session)) this.#remove(name);
  }

  #remove(name: string): void {
    this.#bytes -= this.#sessions.get(name)?.bytes ?? 0;
    this.#sessions.delete(name);
  }
}
