import type { Logger } from '../../observe/log.ts';
import type { SessionEnd, SessionEnded } from '../thread/store/store-calls.ts';

/** How many ends wait for a failing store; further ones are lost. */
const MAX_WAITING = 100_000;

/** Ends of sessions that the store does not take now. Each is tried again until it is stored. */
export class PendingEnds {
  readonly #store: (end: SessionEnd) => Promise<SessionEnded>;
  readonly #log: Logger;
  /** By session and tenant. */
  readonly #waiting = new Map<string, SessionEnd>();
  #sending: Promise<void> | null = null;
  #failed = 0;
  #lost = 0;

  /** @param store rejects if the end can't be stored now */
  constructor(store: (end: SessionEnd) => Promise<SessionEnded>, log: Logger) {
    this.#store = store;
    this.#log = log;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  /** Rejects if the end can't be stored now. */
  async end(end: SessionEnd): Promise<SessionEnded> {
    // An earlier end of the session comes first: of two rewards the later one counts.
    for (const { session } of this.#waiting.values()) {
      if (session !== end.session) continue;
      await this.retry();
      break;
    }
    return this.#store(end);
  }

  /** Stores the end now, or as soon as that is possible. */
  keep(end: SessionEnd): void {
    this.end(end).catch((error: unknown) => this.#wait(end, error as Error));
  }

  /** Tries again to store the ends that wait. */
  retry(): Promise<void> {
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = null;
    });
    return this.#sending;
  }

  #wait(end: SessionEnd, { message: error }: Error): void {
    const { session } = end;
    const key = JSON.stringify([session, end.tenant]);
    if (this.#waiting.size >= MAX_WAITING && !this.#waiting.has(key)) {
      const count = ++this.#lost;
      if (isPowerOf2(count)) this.#log.error({ error, session, count }, 'the end of a session is lost');
      return;
    }
    this.#waiting.set(key, { ...this.#waiting.get(key), ...end });
    const count = ++this.#failed;
    if (isPowerOf2(count)) {
      this.#log.warn({ error, session, count }, 'the end of a session was not stored: it is tried again');
    }
  }

  async #sendAll(): Promise<void> {
    for (const [key, end] of this.#waiting) {
      const isStored = await this.#store(end).then(
        () => true,
        () => false,
      );
      const newer = this.#waiting.get(key)!;
      if (isStored && newer === end) this.#waiting.delete(key);
      if (isStored) continue;
      // The next time another one is the first: it may be this one alone that can't be stored.
      this.#waiting.delete(key);
      this.#waiting.set(key, newer);
      return;
    }
  }
}

const isPowerOf2 = (count: number): boolean => (count & (count - 1)) === 0;
