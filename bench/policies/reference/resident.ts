import { prefillTime } from '../engine-options.ts';
import type { Request, Session } from '../workload.ts';
import { GroupLengths } from './group-lengths.ts';
import { Residents } from './residents.ts';
import { Social } from './social.ts';

/** Share of the memory that may be charged: sessions are charged their mean context, and not all peak at once. */
const fillShare = 1.1;
/** Expected mean context over the first prompt, until the first session has ended. */
const firstGuess = 1.8;
/** Later turns seen before the traffic counts as sessions. */
const sessionTurns = 8;
const probeTokens = 1000;

/** Smaller comes first: class, then order within it. */
type Rank = readonly [number, number, number];

function isBefore(a: Rank, b: Rank): boolean {
  for (let i = 0; i < 3; i++) if (a[i] !== b[i]) return a[i]! < b[i]!;
  return false;
}

/**
 * Sessions live where their context fits, and wait in the router while it fits nowhere. Those paused come first, then
 * one probe of each group, then the longest expected group.
 */
export class Resident extends Social {
  protected readonly residents = new Residents(this.count);
  readonly #lengths = new GroupLengths();
  /** Sessions of each group placed at each engine. */
  readonly #placedByGroup = new Map<string, number[]>();
  #held: Request[] = [];
  #laterTurns = 0;

  override remember(sessions: readonly Session[]): void {
    super.remember(sessions);
    if (sessions.every(({ turns }) => turns.length === 1)) return;
    this.#laterTurns = 100;
    for (const { turns } of sessions) {
      const { promptTokens, outputTokens } = turns.at(-1)!;
      this.#lengths.addFinal(promptTokens + outputTokens);
    }
  }

  override route(request: Request): number | null {
    if (request.turn > 0) {
      this.noteTurn(request);
      const home = this.residents.home(request.sessionId);
      if (home !== undefined && this.isAlive[home]) return this.#stay(request, home);
    }
    if (this.#held.length > 0) {
      this.#held.push(request);
      this.pump();
      return null;
    }
    const engine = this.#place(request);
    if (engine === null) this.#held.push(request);
    return engine;
  }

  override pump(): void {
    while (this.#held.length > 0 && this.inflight.some((_, engine) => this.#fits(probeTokens, engine))) {
      const next = this.#firstHeld();
      const request = this.#held[next]!;
      const engine = this.#place(request);
      if (engine === null) return;
      const last = this.#held.pop()!;
      if (next < this.#held.length) this.#held[next] = last;
      this.host.send(request, engine);
    }
  }

  override finished(request: Request, engine: number): void {
    super.finished(request, engine);
    this.#lengths.finished(request);
    if (!request.isLastTurn) this.residents.grow(request.sessionId, request.promptTokens + request.outputTokens);
  }

  override closed(sessionId: string): void {
    this.residents.forget(sessionId);
  }

  override down(engine: number, lost: readonly Request[]): void {
    super.down(engine, lost);
    for (const sessionId of this.residents.members[engine]!) this.residents.leave(sessionId);
    this.residents.charged[engine] = 0;
  }

  /** Sessions between two turns have lost their prefix, so they may go anywhere. */
  override swapped(engine: number): void {
    super.swapped(engine);
    const busy = new Set([...this.live[engine]!.values()].map((request) => request.sessionId));
    for (const sessionId of this.residents.members[engine]!) if (!busy.has(sessionId)) this.residents.leave(sessionId);
  }

  protected get hasSessions(): boolean {
    return this.#laterTurns >= sessionTurns;
  }

  protected noteTurn(request: Request): void {
    this.#laterTurns += 1;
    this.residents.grow(request.sessionId, request.promptTokens);
  }

  protected hasRoom(tokens: number, engine: number): boolean {
    return this.residents.charged[engine]! + tokens <= fillShare * this.host.engineOptions.kvTokens;
  }

  protected override expectedOutput(request: Request): number {
    return this.hasSessions ? this.meanOutput : this.#lengths.expectedOutput(request.groupId, this.meanOutput);
  }

  /** The mean context of the session while it lives. */
  #expectedContext(request: Request): number {
    const { promptTokens } = request;
    if (!this.hasSessions) return promptTokens + 0.5 * this.expectedOutput(request);
    const { meanFinal } = this.#lengths;
    return meanFinal === undefined ? promptTokens * firstGuess : Math.max(promptTokens * 1.05, 0.6 * meanFinal);
  }

  /** Goes home, unless home has outgrown its memory and this is its youngest session. */
  #stay(request: Request, home: number): number | null {
    const isFull = this.residents.charged[home]! > this.host.engineOptions.kvTokens;
    const isAlone = this.residents.members[home]!.size <= 1;
    if (!isFull || isAlone || !this.residents.isYoungest(request.sessionId, home)) return home;
    this.residents.leave(request.sessionId);
    this.#held.push(request);
    return null;
  }

  #fits(tokens: number, engine: number): boolean {
    return (
      this.isAlive[engine]! &&
      !this.isPaused[engine] &&
      this.inflight[engine]! < this.host.engineOptions.maxSequences &&
      (this.residents.members[engine]!.size === 0 || this.hasRoom(tokens, engine))
    );
  }

  #place(request: Request): number | null {
    const needed = this.#expectedContext(request);
    const placed = this.#placedByGroup.get(request.groupId) ?? this.inflight.map(() => 0);
    let best: number | null = null;
    let lowest = Infinity;
    for (let engine = 0; engine < this.count; engine++) {
      if (!this.#fits(needed, engine)) continue;
      const score = this.#score(request, engine, placed[engine]!);
      if (score >= lowest) continue;
      lowest = score;
      best = engine;
    }
    if (best === null) return null;
    this.residents.enter(request.sessionId, best, needed);
    placed[best]! += 1;
    this.#placedByGroup.set(request.groupId, placed);
    return best;
  }

  /** Seconds, roughly. Samples of a single turn are spread, for their lengths are alike; sessions share their prefix. */
  #score(request: Request, engine: number, siblings: number): number {
    const { engineOptions, now } = this.host;
    const uncached = this.uncached(request, engine);
    const prefill = prefillTime(engineOptions, uncached, request.promptTokens - uncached);
    const queue = Math.max(0, this.prefillEnd[engine]! - now);
    const others = this.inflight[engine]!;
    const base = queue + (12 * this.residents.charged[engine]!) / engineOptions.kvTokens + 0.06 * others;
    return this.hasSessions ? base + prefill * (1 + 0.5 * others) : base + prefill + 0.25 * siblings;
  }

  #firstHeld(): number {
    let first = 0;
    let rank = this.#rank(this.#held[0]!);
    for (let i = 1; i < this.#held.length; i++) {
      const other = this.#rank(this.#held[i]!);
      if (!isBefore(other, rank)) continue;
      first = i;
      rank = other;
    }
    return first;
  }

  #rank(request: Request): Rank {
    if (request.turn > 0 || request.retries > 0) return [0, this.residents.age(request.sessionId), 0];
    if (!this.#placedByGroup.has(request.groupId)) return [1, request.arrivedAt, 0];
    return [2, -this.#lengths.expectedFinal(request), request.arrivedAt];
  }
}
