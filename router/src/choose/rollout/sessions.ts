import type { Bagged } from '../../kit/bag.ts';
import { Chain, type Link } from '../../kit/chain.ts';
import { hash32 } from '../../kit/hash.ts';
import type { Lane } from './lane.ts';

/** Sessions that no request named for this long have ended, before anything was learned of the gaps between turns (ms). */
const FIRST_TTL_MS = 600_000;
const MIN_TTL_MS = 60_000;
export const MAX_TTL_MS = 7_200_000;
/** A session may be silent for this many times the longest gap seen. */
const GAPS = 4;
/** Gaps seen before their longest counts. */
const GAPS_SEEN = 20;
/** How fast a longest gap is forgotten: by half in 700 gaps. */
const FADE = 0.999;
/** Looks for silent sessions in the time after which they count as ended. */
const SWEEPS = 16;
/** Sessions that are remembered, whoever names how many; those that were silent longest go first. */
export const MAX_OPEN = 100_000;
/** Groups that are remembered; the oldest go first. */
const MAX_GROUPS = 10_000;

/** The sessions of one prompt. */
export class Group {
  /** First turns placed at each lane. */
  readonly placed = new Map<Lane, number>();
  /** Answers of its members so far, and their tokens. */
  answers = 0;
  answerTokens = 0;
  /** Its sessions that ended, and their turns together. */
  ended = 0;
  endedTurns = 0;
  readonly open = new Set<Session>();

  /** Turns that a session of this group is expected to have, where `usual` is what any session has. */
  expectedTurns(usual: number): number {
    let sum = this.endedTurns + usual / 2;
    let count = this.ended + 0.5;
    for (const { turns } of this.open) {
      if (turns === 0) continue;
      // Still running: it will have more than it has had.
      sum += Math.max(1.3 * turns, 0.7 * usual);
      count++;
    }
    return sum / count;
  }
}

/** The prompt with which a session begins. */
export interface FirstPrompt {
  readonly tokens: number;
  readonly blocks: Uint32Array;
  readonly tokensPerByte: number;
}

/** An open trajectory. */
export class Session implements Bagged {
  readonly id: string;
  readonly group: Group;
  /** Its place among the residents of its home. */
  bagAt = -1;
  /** Its place among all, in the order of their last turns. */
  link: Link<Session> | null = null;
  /** Place in the order in which sessions were first placed; 0 before. */
  order = 0;
  /** Turns answered. */
  turns = 0;
  /** Turns under way. */
  underWay = 0;
  lastMs: number;
  /** Where its context lies, if anywhere; how many tokens that is, and how many of them others there have too. */
  home: Lane | null = null;
  contextTokens = 0;
  sharedTokens = 0;
  /** What it began with: more than that it shares with nobody. */
  readonly first: FirstPrompt;
  /** What follows that prompt has one entry in the prefix index. */
  readonly entry: number;
  /** Tokens of its last prompt, and bytes of the body that it came in. */
  promptTokens = 0;
  bodyBytes = 0;
  /** The home and the length that were last written down for the next process. */
  writtenHome: Lane | null = null;
  writtenTokens = 0;

  constructor(id: string, group: Group, first: FirstPrompt, nowMs: number) {
    this.id = id;
    this.group = group;
    this.first = first;
    this.entry = hash32(`session ${id}`);
    this.lastMs = nowMs;
  }

  /**
   * Its context lies there now; null: nowhere, or nobody knows.
   *
   * @param cachedTokens of it that were there before
   */
  settle(home: Lane | null, cachedTokens = 0): void {
    if (home === this.home) return;
    if (this.home !== null) {
      this.home.residents.delete(this);
      this.home.residentTokens -= this.contextTokens - this.sharedTokens;
    }
    this.home = home;
    if (home === null) return;
    this.sharedTokens = Math.min(cachedTokens, this.first.tokens);
    home.residents.add(this);
    home.residentTokens += this.contextTokens - this.sharedTokens;
  }

  grow(tokens: number): void {
    if (this.home !== null) this.home.residentTokens += tokens - this.contextTokens;
    this.contextTokens = tokens;
  }
}

/** All open sessions, and how long they are silent between turns. */
export class Sessions {
  readonly #open = new Map<string, Session>();
  /** In the order of their last turns. (A map that is written anew at each turn is hard on V8's collector: see `Bag`.) */
  readonly #order = new Chain<Session>();
  readonly #groups = new Map<string, Group>();
  #gapsSeen = 0;
  #longestGapMs = 0;
  #sweptMs = 0;

  get size(): number {
    return this.#open.size;
  }

  /** How long a session may be silent before it counts as ended. */
  get ttlMs(): number {
    if (this.#gapsSeen < GAPS_SEEN) return FIRST_TTL_MS;
    return Math.min(MAX_TTL_MS, Math.max(MIN_TTL_MS, GAPS * this.#longestGapMs));
  }

  get(id: string): Session | undefined {
    return this.#open.get(id);
  }

  open(id: string, group: Group, first: FirstPrompt, nowMs: number): Session {
    const session = new Session(id, group, first, nowMs);
    group.open.add(session);
    this.#open.set(id, session);
    session.link = this.#order.push(session);
    return session;
  }

  /** A turn of the session begins now. */
  touch(session: Session, nowMs: number): void {
    if (session.turns > 0 && session.underWay === 0) {
      this.#gapsSeen++;
      this.#longestGapMs = Math.max(nowMs - session.lastMs, this.#longestGapMs * FADE);
    }
    session.lastMs = nowMs;
    this.#order.remove(session.link!);
    session.link = this.#order.push(session);
  }

  group(id: string): Group {
    let group = this.#groups.get(id);
    if (group === undefined) {
      this.#groups.set(id, (group = new Group()));
      if (this.#groups.size > MAX_GROUPS) this.#groups.delete(this.#groups.keys().next().value!);
    }
    return group;
  }

  close(session: Session): void {
    this.#open.delete(session.id);
    this.#order.remove(session.link!);
    const { group } = session;
    group.open.delete(session);
    group.ended++;
    group.endedTurns += session.turns;
    session.settle(null);
  }

  /** Sessions that were silent for too long, or are too many; the former looked for now and then, as nobody waits for it. */
  expired(nowMs: number): Session[] {
    const { ttlMs } = this;
    let tooMany = this.#open.size - MAX_OPEN;
    const isDue = nowMs - this.#sweptMs >= ttlMs / SWEEPS;
    if (isDue) this.#sweptMs = nowMs;
    const found: Session[] = [];
    for (let link = this.#order.first; link !== null && (isDue || tooMany > 0); link = link.next) {
      const session = link.value;
      if (session.underWay > 0) continue;
      // Those that wait for their first place are still to come.
      const isExcess = tooMany > 0 && session.order > 0;
      if (!isExcess && !(isDue && nowMs - session.lastMs > ttlMs)) continue;
      found.push(session);
      tooMany--;
    }
    return found;
  }
}
