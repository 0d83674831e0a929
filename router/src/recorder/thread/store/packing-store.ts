import type { OutcomeChange } from '../../shared/outcome.ts';
import type { SessionName, Turn, TurnAmendment } from '../../shared/turn.ts';
import { type Base, packed, readPacked, unpacked } from './packed-body.ts';
import { RecentBodies } from './recent-bodies.ts';
import type { NewestQuery, SessionQuery, TrajectoryStore } from './store.ts';

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

  async get(id: string): Promise<Turn | null> {
    const turn = await this.#inner.get(id);
    return turn === null ? null : this.#whole(turn);
  }

  sessions(query: SessionQuery) {
    return this.#inner.sessions(query);
  }

  newest(query: NewestQuery) {
    return this.#inner.newest(query);
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
    const made = packed(request, await this.#baseOf(turn, isSibling ? last.turn.id : turn.parent));
    this.#recent.add(turn, { id: turn.id, depth: readPacked(made)?.depth ?? 0, body: request });
    return { ...turn, request: made, answer: packedAnswer };
  }

  /** @param id the turn whose request may be the base; null: none. A turn of another session can't be, because it is removed on its own. */
  async #baseOf({ session, tenant }: Turn, id: string | null): Promise<Base | null> {
    if (id === null) return null;
    const recent = this.#recent.get({ session, tenant }, id);
    if (recent !== null) return recent;
    const stored = await this.#inner.get(id);
    return stored?.session === session && stored.tenant === tenant ? this.#requestOf(stored) : null;
  }

  async #whole(turn: Turn): Promise<Turn> {
    const { answer } = turn;
    const known = answer === null ? null : readPacked(answer);
    const request = await this.#requestOf(turn);
    return { ...turn, request: request?.body ?? null, answer: known === null ? answer : unpacked(known, null) };
  }

  /** @returns null: it has none, or its base was removed */
  async #requestOf(turn: Turn): Promise<Base | null> {
    const { id, request } = turn;
    if (request === null) return null;
    const known = readPacked(request);
    if (known === null) return { id, depth: 0, body: request };
    const base = known.base === '' ? null : await this.#baseOf(turn, known.base);
    const body = base === null && known.base !== '' ? null : unpacked(known, base?.body ?? null);
    if (body === null) return null;
    const read = { id, depth: known.depth, body };
    this.#recent.add(turn, read);
    return read;
  }
}

const isOfOneRequest = (a: Turn, b: Turn): boolean =>
  a.session === b.session && a.tenant === b.tenant && a.request === b.request;
