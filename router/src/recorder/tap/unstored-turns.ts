import { SESSION_IDLE_MS } from '../shared/memory-limit.ts';
import { SessionTable } from '../shared/session-table.ts';
import type { ChatName, SessionName } from '../shared/turn.ts';

/** The last turn of a session that the recorder thread got, or was to get. */
interface LastTurn {
  readonly atMs: number;
  /** It, or an earlier one that is not in the store either, is lost. */
  readonly isLost: boolean;
}

/**
 * Sessions with turns that the store may lack: those that a recorder thread which ended may have lost, and its successor can't know of. A
 * memory store is lost with its thread, so there it is all sessions.
 */
export class UnstoredTurns {
  readonly #last = new SessionTable<LastTurn>();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  /** The thread gets a turn of the session. @returns for `stored`; null: the request named no session */
  add(name: ChatName): LastTurn | null {
    if (name.session === '') return null;
    return this.#set(name, this.#last.get(name)?.isLost === true);
  }

  /** A turn of the session is not recorded. */
  miss(name: ChatName): void {
    if (name.session !== '') this.#set(name, true);
  }

  /** This turn is in the store, and the earlier ones of its session with it. */
  stored(name: ChatName, turn: LastTurn): void {
    if (this.#last.get(name) === turn) this.#last.delete(name);
  }

  /** What the thread got before `atMs` is in the store. */
  storedBefore(atMs: number): void {
    for (const { name, value } of this.#last.entries()) if (!value.isLost && value.atMs < atMs) this.#last.delete(name);
  }

  /** The store is not known to have all turns that the thread got. */
  get hasUnproven(): boolean {
    return this.#last.entries().some(({ value }) => !value.isLost);
  }

  /** The session is over: another one may get its name. */
  over(name: SessionName): void {
    this.#last.delete(name);
  }

  /** The thread has ended. @returns the sessions that may have lost turns */
  lose(): readonly ChatName[] {
    const newestIdleMs = this.#nowMs() - SESSION_IDLE_MS;
    const lost: ChatName[] = [];
    for (const { name, value } of this.#last.entries()) {
      if (value.atMs <= newestIdleMs) this.#last.delete(name);
      else {
        // In their order, as the oldest are forgotten first.
        this.#last.set(name, { ...value, isLost: true });
        lost.push(name);
      }
    }
    return lost;
  }

  #set(name: ChatName, isLost: boolean): LastTurn {
    const turn = { atMs: this.#nowMs(), isLost };
    this.#last.set(name, turn);
    return turn;
  }
}
