import type { PlacedRequest } from '../../placed-request.ts';
import type { OpenSession, OpenSessions } from './open-sessions.ts';

/** Values that are remembered as those of users; beyond that the oldest is forgotten. */
const MAX_USERS = 10_000;

/**
 * Decides which values of fields that are for users (`user`, `metadata.user_id`) name sessions. Some clients put the session there, others a
 * user, or one value for everything. A value counts as a session until two of its requests overlap, and then as a user: a session that never
 * has more than one request in flight can't overload its worker, whatever it is.
 */
export class UserKeys {
  readonly #users = new Set<string>();
  readonly #sessions: OpenSessions;
  readonly #close: (session: OpenSession) => void;

  constructor(sessions: OpenSessions, close: (session: OpenSession) => void) {
    this.#sessions = sessions;
    this.#close = close;
  }

  /** Makes a key that may be a session's (`mayBeSession`) a session key, unless its value is a user's. */
  decide(x: PlacedRequest): void {
    const key = x.key!;
    if (this.#users.has(key.value)) return;
    const session = this.#sessions.get(key.value);
    if (session !== undefined && session.inFlight > 0) {
      this.#users.add(key.value);
      if (this.#users.size > MAX_USERS) this.#users.delete(this.#users.keys().next().value!);
      this.#close(session);
      return;
    }
    x.key = { kind: 'session', value: key.value, source: key.source, mayBeSingle: true };
  }
}
