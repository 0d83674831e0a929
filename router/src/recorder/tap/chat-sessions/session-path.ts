/** Ids of sessions stand in paths as they are; what is spelled otherwise is none. */
const IN_SESSION = /^\/sessions\/([\w.~-]{1,256})\/([^?]+)(\?.*)?$/;

/** What is asked for in a session: `/sessions/ID/v1/chat/completions`. */
export interface InSession {
  readonly session: string;
  /** As it would be without the session. */
  readonly target: string;
}

/** @returns null: it is not in a session, or about the session itself */
export function inSession(target: string): InSession | null {
  const [, session = '', path = '', query = ''] = IN_SESSION.exec(target) ?? [];
  if (session === '' || path === 'samples' || path === 'finish' || path.startsWith('/')) return null;
  return { session, target: `/${path}${query}` };
}
