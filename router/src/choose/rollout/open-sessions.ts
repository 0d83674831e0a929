import type { PlacedRequest } from '../../placed-request.ts';
import type { IndexedSetMember } from '../../kit/indexed-set.ts';
import { type ListNode, LinkedList } from '../../kit/linked-list.ts';
import { hash32 } from '../../kit/hash.ts';
import type { StateMap } from '../state.ts';
import type { WorkerState } from './worker-state.ts';

/** An idle session ends after this time until the gaps between turns are known (ms). */
const FIRST_TTL_MS = 600_000;
const MIN_TTL_MS = 60_000;
const MAX_TTL_MS = 7_200_000;
/** A session may be idle for this many times the longest gap seen. */
const GAPS = 4;
/** Gaps that must be seen before the longest one counts. */
const GAPS_SEEN = 20;
/** The longest gap decays with every gap: by half in 700 gaps. */
const FADE = 0.999;
/** Idle sessions are looked for this many times within the time to live. */
const SWEEPS = 16;
/** Sessions that are remembered; beyond that those that were idle longest are closed. */
const MAX_OPEN = 300_000;
/** Groups that are remembered; beyond that the oldest without open sessions are forgotten. */
const MAX_GROUPS = 10_000;
/** Groups that are looked at, beyond that number, for each new one. */
const LOOKED_AT = 2;

/** A session of a group, or a request of it without a session. */
export interface GroupMember {
  /** Where its first turn was placed; null: nowhere yet. */
  firstAt: WorkerState | null;
}

/** The sessions of one prompt. */
export class Group {
  /** Open members by the worker that got their first turn; 0: some were there. Some may have left the fleet. */
  readonly placed = new Map<WorkerState, number>();
  /** Responses so far, and their tokens. */
  answers = 0;
  answerTokens = 0;
  /** Sessions that ended, and their turns in total. */
  #ended = 0;
  #endedTurns = 0;
  /** Open sessions. */
  open = 0;
  /** How many of those that are proven have had so many turns, by that number. (A group may have 100,000 sessions.) */
  readonly #byTurns: number[] = [];
  /** What `expectedTurns` has returned, and the mean it was asked for; null: that has changed. */
  #expected: { readonly usual: number; readonly turns: number } | null = null;

  /** The first turn of a member is placed; `null`: the member has ended. */
  place(member: GroupMember, at: WorkerState | null): void {
    const { firstAt } = member;
    const there = firstAt === null ? undefined : this.placed.get(firstAt);
    if (there !== undefined) this.placed.set(firstAt!, there - 1);
    member.firstAt = at;
    if (at === null) return;
    const members = this.placed.get(at);
    // A group that goes on for weeks would keep all that ever had a turn of it. (To go through all groups when a worker leaves takes too long.)
    if (members === undefined) for (const state of this.placed.keys()) if (state.hasLeft) this.placed.delete(state);
    this.placed.set(at, (members ?? 0) + 1);
  }

  /** Called with -1 before `turns`, `isProven` or `isOpen` of a session changes, and with 1 after that. */
  count({ turns, isProven, isOpen }: OpenSession, by: 1 | -1): void {
    // Without a turn it says nothing.
    if (turns === 0 || !isProven || !isOpen) return;
    this.#byTurns[turns] = (this.#byTurns[turns] ?? 0) + by;
    this.#expected = null;
  }

  /** A session of the group has ended. */
  sawEnd(turns: number): void {
    this.#ended++;
    this.#endedTurns += turns;
    this.#expected = null;
  }

  /**
   * Turns that a session of this group is expected to have, where `usual` is the mean of all sessions. A decision asks for each resident of a
   * worker, so the cost must not grow with the sessions of the group.
   */
  expectedTurns(usual: number): number {
    if (this.#expected?.usual === usual) return this.#expected.turns;
    let sum = this.#endedTurns + usual / 2;
    let count = this.#ended + 0.5;
    for (let turns = 1; turns < this.#byTurns.length; turns++) {
      const sessions = this.#byTurns[turns] ?? 0;
      // A running session will have more turns than it has had.
      sum += sessions * Math.max(1.3 * turns, 0.7 * usual);
      count += sessions;
    }
    this.#expected = { usual, turns: sum / count };
    return this.#expected.turns;
  }
}

/** The prompt with which a session begins. */
export interface FirstPrompt {
  readonly tokens: number;
  readonly blocks: Uint32Array;
  readonly tokensPerByte: number;
}

/** An open session: one trajectory. */
export class OpenSession implements IndexedSetMember, GroupMember {
  readonly id: string;
  readonly group: Group;
  /** Used by the set of residents of its home. */
  setIndex = -1;
  /** Its place in the order of last turns. */
  link: ListNode<OpenSession> | null = null;
  /** Place in the order in which sessions were first placed; 0 before that. */
  order = 0;
  /** False while its key was used once and may never be used again: its context is not kept for another turn then. */
  isProven: boolean;
  #turns = 0;
  /** Turns in flight. */
  inFlight = 0;
  /** Its request that is to be placed next, or was: it waits for a worker as long as that has neither begun nor ended. */
  waiting: Pick<PlacedRequest, 'outcome'> | null = null;
  lastMs: number;
  /** When its first turn arrived (monotonic ms). */
  readonly beganMs: number;
  firstAt: WorkerState | null = null;
  /** When its last turn was sent to a worker; null: not by this process. */
  sentMs: number | null = null;
  /** Where its context is, how many tokens it has, and how many of them other sessions there share. */
  home: WorkerState | null = null;
  contextTokens = 0;
  sharedTokens = 0;
  /** It has no home because the sessions at its last worker had outgrown the KV cache. */
  hasGivenWay = false;
  /** The first prompt: the rest of the context is not shared with other sessions. */
  readonly first: FirstPrompt;
  /** The part of the context after that prompt is one entry in the prefix index. */
  readonly entry: number;
  /** Tokens of its last prompt, and bytes of the body of that request. */
  promptTokens = 0;
  bodyBytes = 0;
  /** The home and length that were last saved for the next process, and when (monotonic ms). */
  writtenHome: WorkerState | null = null;
  writtenTokens = 0;
  writtenMs = 0;

  constructor(id: string, group: Group, first: FirstPrompt, nowMs: number, isProven = true) {
    this.isProven = isProven;
    this.id = id;
    this.group = group;
    this.first = first;
    this.entry = hash32(`session ${id}`);
    this.lastMs = nowMs;
    this.beganMs = nowMs;
  }

  get isOpen(): boolean {
    return this.link !== null;
  }

  /** Turns with a response. */
  get turns(): number {
    return this.#turns;
  }

  set turns(turns: number) {
    this.group.count(this, -1);
    this.#turns = turns;
    this.group.count(this, 1);
  }

  /**
   * Its context is there now; null if it is nowhere or not known.
   *
   * @param cachedTokens of the context that were there before
   */
  settle(home: WorkerState | null, cachedTokens = 0): void {
    if (home === this.home) return;
    if (this.home?.residents.delete(this) === true) {
      this.home.residentTokens -= this.contextTokens - this.sharedTokens;
      this.home.onResidents?.(this.home);
    }
    this.home = home;
    if (home === null) return;
    this.hasGivenWay = false;
    this.sharedTokens = Math.min(cachedTokens, this.first.tokens);
    if (this.isProven) this.#reside(home);
  }

  grow(tokens: number): void {
    const { home } = this;
    if (home !== null && this.isProven) {
      home.residentTokens += tokens - this.contextTokens;
      home.onResidents?.(home);
    }
    this.contextTokens = tokens;
  }

  /** Its key was used again: see `OpenSessions.prove`. */
  prove(): void {
    this.isProven = true;
    this.group.count(this, 1);
    if (this.home !== null) this.#reside(this.home);
  }

  #reside(home: WorkerState): void {
    home.residents.add(this);
    home.residentTokens += this.contextTokens - this.sharedTokens;
    home.onResidents?.(home);
  }
}

/** All open sessions, and the gaps between their turns. */
export class OpenSessions {
  /** Sessions whose keys are known to be used again. */
  proven = 0;
  readonly #maxOpen: number;
  readonly #open = new Map<string, OpenSession>();
  /** In the order of `lastMs`. (A Map that changes at each turn is expensive to collect: see `IndexedSet`.) */
  readonly #order = new LinkedList<OpenSession>();
  readonly #groups = new Map<string, Group>();
  /** Goes through the groups, the oldest first. (To begin anew each time is slow once many at the front were deleted.) */
  #oldGroups = this.#groups.entries();
  #gapsSeen = 0;
  #longestGapMs = 0;
  #sweptMs = 0;

  constructor(maxOpen = MAX_OPEN) {
    this.#maxOpen = maxOpen;
  }

  get size(): number {
    return this.#open.size;
  }

  /** How long a session may be idle before it counts as ended. */
  get ttlMs(): number {
    if (this.#gapsSeen < GAPS_SEEN) return FIRST_TTL_MS;
    return Math.min(MAX_TTL_MS, Math.max(MIN_TTL_MS, GAPS * this.#longestGapMs));
  }

  get(id: string): OpenSession | undefined {
    return this.#open.get(id);
  }

  prove(session: OpenSession): void {
    if (session.isProven) return;
    session.prove();
    this.proven++;
  }

  open(id: string, group: Group, first: FirstPrompt, nowMs: number, isProven = true): OpenSession {
    const session = new OpenSession(id, group, first, nowMs, isProven);
    group.open++;
    this.#open.set(id, session);
    session.link = this.#order.push(session);
    if (isProven) this.proven++;
    return session;
  }

  /** A turn of the session begins now. */
  touch(session: OpenSession, nowMs: number): void {
    if (session.turns > 0 && session.inFlight === 0) {
      this.#gapsSeen++;
      this.#longestGapMs = Math.max(nowMs - session.lastMs, this.#longestGapMs * FADE);
    }
    this.spoke(session, nowMs);
  }

  /** A turn of the session begins or ends now. */
  spoke(session: OpenSession, nowMs: number): void {
    session.lastMs = nowMs;
    // A turn may end after its session was closed.
    if (session.link !== null && this.#order.last !== session.link) this.#order.move(session.link, this.#order.last);
  }

  group(id: string): Group {
    let group = this.#groups.get(id);
    if (group === undefined) {
      this.#groups.set(id, (group = new Group()));
      for (let i = 0; i < LOOKED_AT && this.#groups.size > MAX_GROUPS; i++) this.#forgetGroup();
    }
    return group;
  }

  #forgetGroup(): void {
    const { value } = this.#oldGroups.next();
    if (value === undefined) this.#oldGroups = this.#groups.entries();
    else if (value[1].open === 0) this.#groups.delete(value[0]);
  }

  close(session: OpenSession): void {
    const { group } = session;
    group.count(session, -1);
    group.open--;
    this.#open.delete(session.id);
    this.#order.remove(session.link!);
    session.link = null;
    if (session.isProven) this.proven--;
    group.place(session, null);
    if (session.isProven) group.sawEnd(session.turns);
    session.settle(null);
  }

  /** Sessions that were idle for too long, which are looked for from time to time, or that exceed the limit. */
  expired(nowMs: number): OpenSession[] {
    const { ttlMs } = this;
    let tooMany = this.#open.size - this.#maxOpen;
    const isDue = nowMs - this.#sweptMs >= ttlMs / SWEEPS;
    if (isDue) this.#sweptMs = nowMs;
    const found: OpenSession[] = [];
    for (let link = this.#order.first; link !== null && (isDue || tooMany > 0); link = link.next) {
      const session = link.value;
      // All after it spoke later.
      if (tooMany <= 0 && nowMs - session.lastMs <= ttlMs) break;
      if (session.inFlight > 0 || session.waiting?.outcome === null) continue;
      // A session without a place is still waiting for its first turn.
      const isExcess = tooMany > 0 && session.order > 0;
      if (!isExcess && !(isDue && nowMs - session.lastMs > ttlMs)) continue;
      found.push(session);
      tooMany--;
    }
    return found;
  }
}

/** A home is written when it changes, when its context has grown by this factor, or after this time: one that is saved for too long is not read again. */
const WRITE_GROWN = 1.5;
const WRITE_AGAIN_MS = MAX_TTL_MS / 4;

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
    const { contextTokens, lastMs } = session;
    const isKnown = session.writtenHome === state && contextTokens < WRITE_GROWN * session.writtenTokens;
    if (isKnown && lastMs - session.writtenMs < WRITE_AGAIN_MS) return;
    session.writtenHome = state;
    session.writtenTokens = contextTokens;
    session.writtenMs = lastMs;
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
