import { html } from 'htm/preact';
import { state } from '../feed/connection.ts';
import { count } from '../format.ts';

/** Sessions of which the router has no row have ended, if it knows sessions at all and has a row for each open one. */
export const knowsOpenSessions = (): boolean => {
  const { sessions, unlisted_sessions: unlisted } = state.totals.value;
  return sessions !== null && unlisted === 0;
};

/** Says why it is not known which sessions are open. */
export const UnknownSessions = () => {
  if (knowsOpenSessions()) return null;
  const { sessions, unlisted_sessions: unlisted } = state.totals.value;
  return html`<p class="muted lanes-head">
    ${
      sessions === null
        ? `The router's policy reads no session keys, so it is not known which sessions are open. The policy rollout, for
    example, reads them.`
        : `${count(unlisted)} of ${count(sessions)} open sessions are not listed, so it is not known which of the
    sessions without a state are open.`
    }
  </p>`;
};
