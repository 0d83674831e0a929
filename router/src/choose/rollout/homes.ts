import type { StateMap } from '../state.ts';
import type { Lane } from './lane.ts';
import { MAX_TTL_MS, type Session } from './sessions.ts';

/** A home is written down when it is another one, or its context has grown by so much. */
const WRITE_GROWN = 1.5;

/** Where a session's context lay, and how long it was. */
interface Home {
  readonly url: string;
  readonly tokens: number;
}

/** Where open sessions are and how long they are, by id, for the next process. */
export class Homes {
  readonly #map: StateMap;

  constructor(map: StateMap) {
    this.#map = map;
    for (const [id, home] of map.entries()) if (readHome(home) === null) map.delete(id);
  }

  /** As an earlier process left it. */
  of(id: string): Home | null {
    const saved = this.#map.get(id);
    return saved === undefined ? null : readHome(saved);
  }

  /** Not at every turn, as it need not be exact. */
  write(session: Session, lane: Lane): void {
    if (session.writtenHome === lane && session.contextTokens < WRITE_GROWN * session.writtenTokens) return;
    session.writtenHome = lane;
    session.writtenTokens = session.contextTokens;
    this.#map.set(session.id, homeText(lane.worker.url, session.contextTokens));
  }

  forget(id: string): void {
    this.#map.delete(id);
  }
}

/** Where a session was, how long it was, and when: `tokens wall-clock-seconds url`. */
const homeText = (url: string, tokens: number): string =>
  `${Math.round(tokens)} ${Math.floor(Date.now() / 1000)} ${url}`;

/** @returns null for what is no such text, or too old for its session to go on */
function readHome(text: string): Home | null {
  const [, tokens, secs, url] = /^(\d+) (\d+) (.+)$/.exec(text) ?? [];
  if (url === undefined || Date.now() - Number(secs) * 1000 > MAX_TTL_MS) return null;
  return { url, tokens: Number(tokens) };
}
