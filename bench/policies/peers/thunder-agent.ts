// ThunderAgent (HaoKang-Timmy/ThunderAgent, February 2026): pauses and resumes whole sessions ("programs").
import type { PolicyHost, SimPolicyFactory } from '../policy.ts';
import type { Request } from '../workload.ts';
import { RouterPolicy } from './router-view.ts';

export interface ThunderAgentOptions {
  /** `--use-acting-token-decay`: to resume, contexts between turns count half after a second, a quarter after two ... */
  readonly hasDecay: boolean;
  /**
   * What its wiki says and its code does not do: a prefix that running requests share counts once, and who is marked for
   * a pause counts as gone. In the code the first is never updated and the second is never read.
   */
  readonly isAsDocumented: boolean;
  /** Seconds after which a wait ends; in its code 1,800. */
  readonly longestWait: number;
}

/** Seconds between two runs of the scheduler. */
const interval = 5;
/** Tokens kept free per program. */
const buffer = 100;
const charsPerToken = 4;
const firstCharsPerToken = 5;

interface Program {
  readonly id: string;
  /** A request of it is at an engine or waits. */
  isReasoning: boolean;
  isPaused: boolean;
  /** It is paused after its answer. */
  isMarked: boolean;
  /** Requests so far. */
  steps: number;
  /** Of its last answer; of its prompt, estimated, while a request is on its way. */
  tokens: number;
  /** `tokens` when it was paused. */
  pausedTokens: number;
  /** -1 when paused. */
  backend: number;
  actingSince: number;
  waiting: Request | null;
}

const bySize = (a: Program, b: Program): number => a.tokens - b.tokens;

/**
 * With the line of `_greedy_resume` mended that makes its snapshot (260e227) raise. Answers are not streamed. The events of
 * streams, replayed through its own code, led to the same decisions.
 */
export class ThunderAgent extends RouterPolicy {
  readonly #options: ThunderAgentOptions;
  readonly #programs = new Map<string, Program>();
  /** Paused programs, in the order of their pauses. */
  readonly #queue = new Set<Program>();
  readonly #shared: number[] = this.inflight.map(() => 0);
  #charsPerToken = firstCharsPerToken;
  #hasRatio = false;
  #nextRun = interval;

  constructor(host: PolicyHost, options: ThunderAgentOptions) {
    super(host);
    this.#options = options;
    host.pumpAt(this.#nextRun);
  }

  route(request: Request): number | null {
    const program = this.#programOf(request.sessionId);
    if (request.retries === 0) program.steps += 1;
    program.tokens = Math.trunc((request.promptTokens * charsPerToken) / this.#charsPerToken);
    program.isReasoning = true;
    if (!program.isPaused && program.backend < 0) {
      const backend = this.#backendForNew(program.tokens);
      if (backend === null) this.#pause(program);
      else program.backend = backend;
    }
    if (!program.isPaused) return program.backend;
    program.waiting = request;
    return null;
  }

  override finished(request: Request, engine: number): void {
    super.finished(request, engine);
    const program = this.#programs.get(request.sessionId)!;
    program.isReasoning = false;
    program.actingSince = this.host.now;
    // The ratio of every answer is the same here, so its moving average is its first value.
    if (!this.#hasRatio) this.#charsPerToken = charsPerToken;
    this.#hasRatio = true;
    program.tokens = request.promptTokens + request.outputTokens;
    if (program.isMarked) this.#pause(program);
  }

  /** `POST /programs/release`. */
  override closed(sessionId: string): void {
    const program = this.#programs.get(sessionId)!;
    this.#queue.delete(program);
    this.#programs.delete(sessionId);
  }

  /** Its own code has no failover. Here the programs of a lost engine are paused and resumed elsewhere. */
  override down(engine: number, lost: readonly Request[]): void {
    super.down(engine, lost);
    for (const program of this.#at(engine)) this.#pause(program);
  }

  override pump(): void {
    if (this.host.now < this.#nextRun) return;
    this.#nextRun += interval;
    this.host.pumpAt(this.#nextRun);
    if (this.#options.isAsDocumented) this.#updateShared();
    this.#resumeAll();
    for (const backend of this.alive) this.#pauseUntilSafe(backend);
    for (const program of this.#queue) {
      // It would wait for too long at the next run.
      const isDue = program.waiting !== null && this.#nextRun - program.waiting.arrivedAt > this.#options.longestWait;
      if (isDue)
        this.#resume(
          program,
          this.lowest((engine) => this.#at(engine).length),
        );
    }
  }

  #programOf(id: string): Program {
    let program = this.#programs.get(id);
    if (program === undefined) {
      program = {
        id,
        isReasoning: true,
        isPaused: false,
        isMarked: false,
        steps: 0,
        tokens: 0,
        pausedTokens: 0,
        backend: -1,
        actingSince: 0,
        waiting: null,
      };
      this.#programs.set(id, program);
    }
    return program;
  }

  #at(backend: number): Program[] {
    return [...this.#programs.values()].filter((program) => program.backend === backend);
  }

  /** The backend with the fewest tokens of those with room; none while anybody waits. */
  #backendForNew(tokens: number): number | null {
    if (this.#queue.size > 0) return null;
    const free = this.alive.map((backend) => ({ backend, room: this.#room(backend), used: this.#used(backend, 1) }));
    const fitting = free.filter(({ room }) => room >= tokens + buffer);
    return fitting.toSorted((a, b) => a.used - b.used)[0]?.backend ?? null;
  }

  #used(backend: number, actingWeight: number | ((program: Program) => number)): number {
    let tokens = 0;
    for (const program of this.#at(backend)) {
      const weight = typeof actingWeight === 'number' ? actingWeight : actingWeight(program);
      tokens += program.tokens * (program.isReasoning ? 1 : weight);
    }
    return Math.trunc(tokens);
  }

  #room(backend: number, actingWeight: number | ((program: Program) => number) = 1): number {
    const buffers = buffer * this.#at(backend).length;
    return this.host.engineOptions.kvTokens - this.#used(backend, actingWeight) + this.#shared[backend]! - buffers;
  }

  #updateShared(): void {
    for (const backend of this.alive) {
      this.#shared[backend] = Math.max(0, this.#used(backend, 0) - this.host.engines[backend]!.usedTokens);
    }
  }

  #decayed = ({ actingSince }: Program): number => 2 ** -(this.host.now - actingSince);

  /** As many as all rooms together hold, in order; the largest of them goes where the most room is. */
  #resumeAll(): void {
    const weight = this.#options.hasDecay ? this.#decayed : 1;
    let rooms = this.alive
      .map((backend) => ({ backend, left: this.#room(backend, weight) }))
      .filter(({ left }) => left > buffer);
    let total = rooms.reduce((sum, { left }) => sum + left, 0);
    const chosen: Program[] = [];
    for (const program of this.#inOrder()) {
      const needed = program.tokens + buffer;
      if (needed > total) continue;
      total -= needed;
      chosen.push(program);
    }
    for (const program of chosen.toSorted((a, b) => bySize(b, a))) {
      rooms = rooms.toSorted((a, b) => b.left - a.left);
      const most = rooms[0];
      if (most === undefined) return;
      const needed = program.tokens + buffer;
      if (needed > most.left) continue;
      this.#resume(program, most.backend);
      most.left -= needed;
      if (most.left <= buffer) rooms.shift();
    }
  }

  /** With a request of a later step; new; between turns. The smallest first. */
  #inOrder(): Program[] {
    const waiting = [...this.#queue].sort((a, b) => a.pausedTokens - b.pausedTokens);
    const isNew = ({ steps }: Program): boolean => steps === 1;
    return [
      ...waiting.filter((program) => !isNew(program) && program.isReasoning),
      ...waiting.filter(isNew),
      ...waiting.filter((program) => !isNew(program) && !program.isReasoning),
    ];
  }

  /** Between turns at once, then those with a request after their answer. The smallest first. */
  #pauseUntilSafe(backend: number): void {
    const { isAsDocumented } = this.#options;
    const programs = this.#at(backend).sort(bySize);
    let room = this.#room(backend);
    for (const { isMarked, tokens } of programs) if (isAsDocumented && isMarked) room += tokens + buffer;
    for (const program of programs) {
      if (room >= 0) return;
      if (program.isReasoning) continue;
      this.#pause(program);
      room += program.tokens + buffer;
    }
    for (const program of programs) {
      if (room >= 0) return;
      if (!program.isReasoning || program.isMarked) continue;
      program.isMarked = true;
      if (isAsDocumented) room += program.tokens + buffer;
    }
  }

  #pause(program: Program): void {
    program.isMarked = false;
    program.isPaused = true;
    program.backend = -1;
    program.pausedTokens = program.tokens;
    this.#queue.add(program);
  }

  #resume(program: Program, backend: number): void {
    this.#queue.delete(program);
    program.isPaused = false;
    program.backend = backend;
    const { waiting } = program;
    program.waiting = null;
    if (waiting !== null) this.host.send(waiting, backend);
  }
}

export const thunderAgentDefaults: ThunderAgentOptions = { hasDecay: false, isAsDocumented: false, longestWait: 1800 };

const thunderAgent =
  (options: Partial<ThunderAgentOptions>): SimPolicyFactory =>
  (host) =>
    new ThunderAgent(host, { ...thunderAgentDefaults, ...options });

export const thunderAgentPolicies = {
  thunder_agent: thunderAgent({}),
  thunder_agent_decay: thunderAgent({ hasDecay: true }),
  thunder_agent_documented: thunderAgent({ isAsDocumented: true }),
  thunder_agent_60s: thunderAgent({ longestWait: 60 }),
};
