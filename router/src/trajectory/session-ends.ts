import type { SessionName } from './turn.ts';

type Listener = (name: SessionName) => void;

/**
 * The one place on the trajectory thread that says that a session is over, by whatever way its client said so. A session that is over
 * may go on nevertheless: a turn after its end is a turn like any other.
 */
export class SessionEnds {
  readonly #listeners: Listener[] = [];

  /** @param listener is called with a name without a tenant where the sessions of all tenants are over */
  listen(listener: Listener): void {
    this.#listeners.push(listener);
  }

  tell(name: SessionName): void {
    for (const listener of this.#listeners) listener(name);
  }
}
