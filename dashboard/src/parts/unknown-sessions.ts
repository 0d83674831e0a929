import { html } from 'htm/preact';
import { state } from '../feed/connection.ts';

/** Sessions of which the router has no row have ended, if it knows sessions at all. */
export const knowsSessions = (): boolean => state.totals.value.sessions !== null;

/** Says why it is not known which sessions are open. */
export const UnknownSessions = () =>
  !knowsSessions() &&
  html`<p class="muted lanes-head">
    The router's policy reads no session keys, so it is not known which sessions are open. The policy rollout, for
    example, reads them.
  </p>`;
