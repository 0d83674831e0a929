import { SessionTable } from '../../shared/session-table.ts';
import type { ChatName, SessionName } from '../../shared/turn.ts';

/**
 * Sessions with turns that are on no record, from any cause: what is on record of them is not what their rewards are for. Also those that are in
 * no group yet: a session may join with a later turn, and the feed may begin after a thread that had lost turns.
 */
export class IncompleteSessions {
  /** Called for each session that is added. */
  onAdded: (name: ChatName) => void = () => {};
  readonly #names = new SessionTable<true>();

  add(name: ChatName): void {
    if (name.session === '') return;
    this.#names.set(name, true);
    this.onAdded(name);
  }

  has(name: ChatName): boolean {
    return this.#names.get(name) !== null;
  }

  all(): ChatName[] {
    return this.#names.entries().map(({ name }) => name);
  }

  /** The session is over, and its members know it: another one may get its name. */
  over(name: SessionName): void {
    this.#names.delete(name);
  }
}
