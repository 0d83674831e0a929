import type { Logger } from '../../observe/log.ts';
import type { SessionEnd, SessionEnded } from '../thread/store/store-calls.ts';

/** How many ends wait for a failing store; further ones are lost. */
const MAX_WAITING = 100_000;

const NOT_STORED = Promise.resolve(false);

/** Ends of sessions that the store does not take now. Each is tried again until it is stored. */
export class PendingEnds {
  readonly #store: (end: SessionEnd) => Promise<SessionEnded>;
  readonly #log: Logger;
  /** By session: of each tenant one. */
  readonly #waiting = new Map<string, SessionEnd[]>();
  /** The last work on the ends of each session: the next one begins when it is done. */
  readonly #last = new Map<string, Promise<unknown>>();
  #count = 0;
  #sending: Promise<void> | null = null;
  #failed = 0;
  #lost = 0;

  /** @param store rejects if the end can't be stored now */
  constructor(store: (end: SessionEnd) => Promise<SessionEnded>, log: Logger) {
    this.#store = store;
    this.#log = log;
  }

  get waiting(): number {
    return this.#count;
  }

  /** Whether an end of the session waits, or is being stored: the next one is to be stored after it. */
  has(session: string): boolean {
    return this.#last.has(session) || this.#waiting.has(session);
  }

  /** Rejects if the end can't be stored now. */
  end(end: SessionEnd): Promise<SessionEnded> {
    return this.#inOrder(end.session, async () => {
      // An earlier end of the session comes first: of two rewards the later one counts.
      await this.#sendOf(end.session);
      return this.#store(end);
    });
  }

  /**
   * Stores the end now, or as soon as that is possible.
   * @param isStored resolves when the end was tried with the response that said it: then only one that was not stored is stored here
   */
  keep(end: SessionEnd, isStored: Promise<boolean> = NOT_STORED): void {
    void this.#inOrder(end.session, async () => {
      if (await isStored) return;
      try {
        await this.#sendOf(end.session);
        await this.#store(end);
      } catch (error) {
        this.#wait(end, error as Error);
      }
    });
  }

  /** Tries again to store the ends that wait. */
  retry(): Promise<void> {
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = null;
    });
    return this.#sending;
  }

  /** Two ends of a session at once could be stored in either order. */
  #inOrder<Result>(session: string, work: () => Promise<Result>): Promise<Result> {
    const before = this.#last.get(session);
    const done = before === undefined ? work() : before.then(work);
    const last = done
      .catch(() => {})
      .finally(() => {
        if (this.#last.get(session) === last) this.#last.delete(session);
      });
    this.#last.set(session, last);
    return done;
  }

  #wait(end: SessionEnd, { message: error }: Error): void {
    const { session, tenant } = end;
    const ends = this.#waiting.get(session) ?? [];
    const at = ends.findIndex((earlier) => earlier.tenant === tenant);
    if (at < 0 && this.#count >= MAX_WAITING) {
      const count = ++this.#lost;
      if (isPowerOf2(count)) this.#log.error({ error, session, count }, 'the end of a session is lost');
      return;
    }
    if (at < 0) this.#count++;
    this.#waiting.set(session, at < 0 ? [...ends, end] : ends.with(at, { ...ends[at]!, ...end }));
    const count = ++this.#failed;
    if (isPowerOf2(count)) {
      this.#log.warn({ error, session, count }, 'the end of a session was not stored: it is tried again');
    }
  }

  async #sendAll(): Promise<void> {
    for (const [session] of this.#waiting) {
      try {
        await this.#inOrder(session, () => this.#sendOf(session));
      } catch {
        // The next time another one is the first: it may be this one alone that can't be stored.
        const ends = this.#waiting.get(session) ?? [];
        this.#waiting.delete(session);
        if (ends.length > 0) this.#waiting.set(session, ends);
        return;
      }
    }
  }

  /** Rejects if the store does not take an end of the session. */
  async #sendOf(session: string): Promise<void> {
    for (const end of this.#waiting.get(session) ?? []) {
      await this.#store(end);
      const ends = this.#waiting.get(session) ?? [];
      // One that was given more meanwhile stays, and is stored the next time.
      const rest = ends.filter((each) => each !== end);
      this.#count -= ends.length - rest.length;
      if (rest.length > 0) this.#waiting.set(session, rest);
      else this.#waiting.delete(session);
    }
  }
}

const isPowerOf2 = (count: number): boolean => (count & (count - 1)) === 0;
