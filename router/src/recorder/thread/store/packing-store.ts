import type { OutcomeChange } from '../../shared/outcome.ts';
import type { SessionName, Turn, TurnAmendment, TurnQuery } from '../../shared/turn.ts';
import { type Base, packed, readPacked, unpacked } from './packed-body.ts';
import { RecentBodies } from './recent-bodies.ts';
import type { NewestQuery, SessionQuery, Soon, TrajectoryStore } from './store.ts';

const then = <A, B>(value: Soon<A>, next: (value: A) => Soon<B>): Soon<B> =>
  value instanceof Promise ? value.then(next) : next(value);

/** Runs calls one after the other; synchronous unless one returns a promise. */
function inTurn<A, B>(items: readonly A[], each: (item: A) => Soon<B>, made: B[] = []): Soon<B[]> {
  for (let i = made.length; i < items.length; i++) {
    const one = each(items[i]!);
    if (one instanceof Promise) return one.then((value) => inTurn(items, each, [...made, value]));
    made.push(one);
  }
  return made;
}

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

  get isInMemory(): boolean {
    return this.#inner.isInMemory;
  }

  put(turns: readonly Turn[]): Soon<void> {
    const failed = (error: unknown): never => {
      // A turn that was not stored can't be a base.
      for (const { session, tenant } of turns) this.#recent.forget(session, tenant);
      throw error;
    };
    try {
      const made = inTurn(turns, (turn) => this.#packed(turn));
      const done = then(made, (all) => this.#inner.put(all));
      return done instanceof Promise ? done.catch(failed) : done;
    } catch (error) {
      return failed(error);
    }
  }

  amend(amendments: readonly TurnAmendment[]) {
    return this.#inner.amend(amendments);
  }

  get(id: string): Soon<Turn | null> {
    return then(this.#inner.get(id), (turn) => (turn === null ? null : this.#whole(turn)));
  }

  find(query: TurnQuery): Soon<readonly Turn[]> {
    return then(this.#inner.find(query), (turns) => inTurn(turns, (turn) => this.#whole(turn)));
  }

  sessions(query: SessionQuery) {
    return this.#inner.sessions(query);
  }

  outlines(session: string, tenant?: string) {
    return this.#inner.outlines(session, tenant);
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

  #packed(turn: Turn): Soon<Turn> {
    const { request, answer } = turn;
    if (request === null && answer === null) return turn;
    const last = this.#last;
    // The turns of several choices share a request and a response.
    const isSibling = last !== null && last.turn.id !== turn.id && isOfOneRequest(last.turn, turn);
    const packedAnswer =
      answer === null ? null : isSibling && last.turn.answer === answer ? last.answer : packed(answer, null);
    this.#last = { turn, answer: packedAnswer };
    if (request === null) return { ...turn, answer: packedAnswer };
    return then(this.#baseOf(turn, isSibling ? last.turn.id : turn.parent), (base) => {
      const made = packed(request, base);
      this.#recent.add(turn, { id: turn.id, depth: readPacked(made)?.depth ?? 0, body: request });
      return { ...turn, request: made, answer: packedAnswer };
    });
  }

  /** @param id the turn whose request may be the base; null: none. A turn of another session can't be, because it is removed on its own. */
  #baseOf({ session, tenant }: Turn, id: string | null): Soon<Base | null> {
    if (id === null) return null;
    const isOwn = (turn: Turn): boolean => turn.session === session && turn.tenant === tenant;
    const stored = (): Soon<Base | null> =>
      then(this.#inner.get(id), (turn) => (turn === null || !isOwn(turn) ? null : this.#requestOf(turn)));
    return this.#recent.get({ session, tenant }, id) ?? stored();
  }

  #whole(turn: Turn): Soon<Turn> {
    const { answer } = turn;
    const known = answer === null ? null : readPacked(answer);
    const whole = known === null ? answer : unpacked(known, null);
    return then(this.#requestOf(turn), (request) => ({ ...turn, request: request?.body ?? null, answer: whole }));
  }

  /** @returns null: it has none, or its base was removed */
  #requestOf(turn: Turn): Soon<Base | null> {
    const { id, request } = turn;
    if (request === null) return null;
    const known = readPacked(request);
    if (known === null) return { id, depth: 0, body: request };
    const made = (base: Base | null): Base | null => {
      const body = unpacked(known, base?.body ?? null);
      if (body === null) return null;
      const read = { id, depth: known.depth, body };
      this.#recent.add(turn, read);
      return read;
    };
    if (known.base === '') return made(null);
    return then(this.#baseOf(turn, known.base), (base) => (base === null ? null : made(base)));
  }
}

const isOfOneRequest = (a: Turn, b: Turn): boolean =>
  a.session === b.session && a.tenant === b.tenant && a.request === b.request;
