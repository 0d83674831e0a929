import type { StateMap } from '../state.ts';
import type { WorkerState } from './worker-state.ts';
import { MAX_TTL_MS, type OpenSession } from './open-sessions.ts';

/** A home is written when it changes, or when its context has grown by this factor. */
const WRITE_GROWN = 1.5;

/** Where the context of a session was, and how long it was. */
interface Home {
  readonly url: string;
  readonly tokens: number;
}

/** The homes of open sessions and the lengths of their contexts, by session id, for the next process. */
export class SavedHomes {
  readonly #map: StateMap;

  constructor(map: StateMap) {
    this.#map = map;
    for (const [id, home] of map.entries()) if (readHome(home) === null) map.delete(id);
  }

  /** As an earlier process saved it. */
  of(id: string): Home | null {
    const saved = this.#map.get(id);
    return saved === undefined ? null : readHome(saved);
  }

  /** Not at every turn, because an approximate length is enough. */
  write(session: OpenSession, state: WorkerState): void {
    if (session.writtenHome === state && session.contextTokens < WRITE_GROWN * session.writtenTokens) return;
    session.writtenHome = state;
    session.writtenTokens = session.contextTokens;
    this.#map.set(session.id, homeText(state.worker.url, session.contextTokens));
  }

  forget(id: string): void {
    this.#map.delete(id);
  }
}

/** `tokens wall-clock-seconds url`. */
const homeText = (url: string, tokens: number): string =>
  `${Math.round(tokens)} ${Math.floor(Date.now() / 1000)} ${url}`;

/** @returns null if the text is not valid, or too old for its session to continue */
function readHome(text: string): Home | null {
  const [, tokens, secs, url] = /^(\d+) (\d+) (.+)$/.exec(text) ?? [];
  if (url === undefined || Date.now() - Number(secs) * 1000 > MAX_TTL_MS) return null;
  return { url, tokens: Number(tokens) };
}
