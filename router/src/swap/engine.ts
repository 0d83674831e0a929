import { askJson } from '../engines/ask.ts';
import type { EngineKind } from '../engines/engine.ts';
import { engines, identify } from '../engines/engines.ts';
import { UNSET } from '../engines/weight-label.ts';
import type { EngineWeights } from '../weights/engine-weights.ts';
import type { Worker } from '../fleet/worker.ts';
import type { EngineSwap } from './engine-swap.ts';
import { Namespaces } from './namespaces.ts';
import { RESUME_TRIES } from './plan.ts';
import type { ProcessWatch } from './process-watch.ts';
import type { WorkerSet } from './worker-set.ts';

/**
 * - `registered`: what it is and has is not known yet;
 * - `warming`: it gets the snapshot of the fleet before its first request;
 * - `serving`: what it has is known;
 * - `quarantined`: what it has is not known, or not what the fleet has.
 */
export type EnginePhase = 'registered' | 'warming' | 'serving' | 'quarantined';

/** An engine and its swap, for those that ask how far it is. */
export interface EngineStatus {
  readonly state: EnginePhase | 'draining' | 'swapping' | 'error' | 'paused';
  readonly snapshot: string | null;
  /** The snapshot that the last swap wants for it; null: there was no swap. */
  readonly target: string | null;
  /** pending, gate, drain, pause, load, label, resume, done or error. */
  readonly stage: string;
  readonly error: string | null;
}

/** An engine for all its data-parallel ranks: they have the same weights and are swapped with the same calls. */
export class SwapEngine implements EngineWeights {
  readonly url: string;
  /** The engines whose weights it shares. */
  readonly set: WorkerSet;
  readonly ranks = new Set<Worker>();
  readonly namespaces = new Namespaces();
  phase: EnginePhase = 'registered';
  /** The identity of its weights; null: not known. */
  snapshot: string | null = null;
  /** The identity of its whole weights: the snapshot, or what is under an adapter; null: not known. */
  whole: string | null = null;
  /** Whether the engine reports the snapshot as its weight version, so that a restart can be told from it. */
  isLabelled = false;
  breaks = 0;
  /** It may be another process, or have other weights: it is being checked. */
  isDoubted = false;
  /** null: not brought in yet. */
  watch: ProcessWatch | null = null;
  /** When its process was started, as it reports; null: it does not. */
  startedAt: string | null = null;
  /** null: it was not asked yet. */
  kind: EngineKind | null = null;
  /** Where the weights are that it was started with: '' for an engine that knows by itself; null: not known. */
  bootPath: string | null = null;
  /** The swap that runs, or the last one. */
  swap: EngineSwap | null = null;
  /** A trainer has paused it past `/swap`, and may move weights. */
  isHeldByTrainer = false;
  /** Why it may not serve although its weights are known: it is paused, by no swap of this router; null: it is not. */
  pausedBecause: string | null = null;
  /** Updates of a trainer past `/swap`, without a pause, that have not ended. */
  updates = 0;
  /** It was brought in by this router once. */
  hasBeenIn = false;
  /** Why it does not have what it should have; null: it has. */
  error: string | null = null;

  constructor(url: string, set: WorkerSet) {
    this.url = url;
    this.set = set;
  }

  /** A worker through which the engine is asked. Also after the last one was removed: its swap comes to an end. */
  get worker(): Worker {
    return this.#worker!;
  }
  #worker: Worker | null = null;

  /** Its weights are about to change. */
  get isBusy(): boolean {
    return this.isHeldByTrainer || this.updates > 0 || this.swap?.isRunning === true;
  }

  /** It is not known yet, and gets the snapshot of the fleet when it is. */
  get isJoining(): boolean {
    return this.phase === 'registered' && this.pausedBecause === null;
  }

  get status(): EngineStatus {
    const { phase, pausedBecause, snapshot } = this;
    const { running } = this.set;
    const last = this.swap?.state ?? null;
    // It has what is wanted now: that an earlier swap failed does not count any more.
    const state = last?.stage === 'error' && this.error === null ? null : last;
    const isOver = state === null || state.stage === 'done' || state.stage === 'error';
    const isStuck = state?.stage === 'resume' && state.failures >= RESUME_TRIES;
    const during = state?.stage === 'drain' ? 'draining' : phase === 'serving' ? 'swapping' : 'warming';
    const after = pausedBecause !== null ? 'paused' : phase === 'serving' && this.error !== null ? 'error' : phase;
    const target = isOver ? (running?.identity ?? state?.target ?? null) : state.target;
    // The end of its last swap says nothing of the one that runs, which has not come to this engine.
    const isBefore = isOver && running !== null && !running.engines.has(this.url);
    const stage = !isBefore ? (state?.stage ?? 'done') : snapshot === target ? 'done' : 'pending';
    return {
      state: isStuck ? 'error' : this.isHeldByTrainer ? 'swapping' : isOver ? after : during,
      snapshot,
      target,
      stage: isStuck ? 'error' : this.isHeldByTrainer ? 'load' : stage,
      error: (isOver ? pausedBecause : null) ?? this.error ?? state?.error ?? state?.warning ?? null,
    };
  }

  /** The name that it has kept although a trainer has replaced its weights: it names no weights. null: there is none. */
  get keptName(): string | null {
    return this.set.ledger.keptNameOf(this.url);
  }

  get name(): string {
    return this.isLabelled ? (this.snapshot ?? '') : (this.keptName ?? UNSET);
  }

  /** Only a name shows that it was not restarted while its process was not watched; not that it was started with these weights. */
  get isSure(): boolean {
    const isBoot = this.snapshot === this.set.options.baseIdentity;
    if (this.phase !== 'serving' || this.isDoubted || this.updates > 0) return false;
    return this.isLabelled || isBoot || this.#isWatched;
  }

  fits(name: string | null, stale: string | null): boolean {
    if (this.isLabelled) return name === this.snapshot;
    return name === null || name === UNSET || name === stale || name === this.keptName;
  }

  setInSwap(isInSwap: boolean): void {
    for (const worker of this.ranks) worker.isInSwap = isInSwap;
  }

  add(worker: Worker): void {
    this.ranks.add(worker);
    this.#worker = worker;
  }

  /** Asks the engine what it is. Rejects if it does not answer. */
  async learn(timeoutMs: number): Promise<void> {
    const ask = this.worker.asker(timeoutMs);
    // A paused one is not healthy, and answers.
    await ask('/v1/models');
    this.kind ??= this.worker.engine ?? (await identify(ask)).kind;
  }

  /** Its process is watched from now on, where that is possible. What it sampled while it was not watched has unknown weights. */
  async watchAtOnce(): Promise<void> {
    if (this.#isWatched) return;
    await this.watch?.open(this.worker.pool.endpoint, true);
    if (!this.#isWatched) this.breaks++;
  }

  get #isWatched(): boolean {
    return this.watch?.isOpen === true;
  }

  /** Notes when its process was started. @returns whether it is the same one as before; false: that is not known */
  async isSameProcess(timeoutMs: number): Promise<boolean> {
    const before = this.startedAt;
    const ask = this.worker.asker(timeoutMs);
    this.startedAt = this.kind === null ? null : ((await engines[this.kind].readStart?.(ask)) ?? null);
    return before !== null && before === this.startedAt;
  }

  /** Where its present weights come from; '' for an engine that finds those of its start by itself. */
  async readPath(timeoutMs: number): Promise<string | null> {
    if (this.kind !== 'sglang') return '';
    const path = (await askJson(this.worker.asker(timeoutMs), '/model_info'))?.['model_path'];
    return typeof path === 'string' ? path : null;
  }

  /** Its weights are not known. A request may have come to it with the belief of before. */
  lose(): void {
    this.snapshot = null;
    this.whole = null;
    this.breaks++;
  }

  /** A trainer has replaced its weights past `/swap` without a new name for them. @param name what it reports */
  unname(name: string | null): void {
    this.lose();
    this.isLabelled = false;
    this.set.ledger.noteKeptName(this.url, name ?? UNSET);
  }

  /** It is another process, or its weights were replaced past the router. */
  forget(): void {
    this.lose();
    this.set.ledger.noteKeptName(this.url, null);
    this.kind = null;
  }
}

/**
 * The order in which engines get new weights: each part of it has the same share of the engines of each role. Requests go to pairs whose engines
 * have the same weights: if all prefill engines came first, no pair would match until the first decode engine is done.
 */
export function byTurns(engines: readonly SwapEngine[]): SwapEngine[] {
  const placed = [...Map.groupBy(engines, ({ worker }) => worker.role).values()].flatMap((alike) =>
    alike.map((engine, i) => ({ engine, place: (i + 0.5) / alike.length })),
  );
  return placed.toSorted((a, b) => a.place - b.place).map(({ engine }) => engine);
}
