import { UNSET } from '../engines/weight-label.ts';
import type { EngineWeights, LoadStage, WeightSource } from '../weights/engine-weights.ts';
import type { Worker } from '../fleet/worker.ts';
import type { EngineSwap, LoadableSnapshot } from './engine-swap.ts';
import { type EnginePhase, SwapEngine } from './engine.ts';
import type { Gate } from './gate.ts';
import { Ledger } from './ledger.ts';
import { Lifecycle } from './lifecycle.ts';
import type { SwapOwner } from './owner.ts';
import type { SwapMeters } from './swap-meters.ts';
import type { ConfiguredDeployment, SwapParts } from './swaps.ts';
import { WorkerSet } from './worker-set.ts';
import type { Fleet } from '../fleet/fleet.ts';

/** After a swap its aborts may be reported for this long. */
const ABORT_REPORT_MS = 1_000;

export interface EngineTableParts extends SwapParts {
  readonly gate: Gate;
  readonly meters: SwapMeters;
  readonly owner: SwapOwner;
}

/** An engine before an update of its weights past `/swap`. */
export interface BeforeUpdate {
  /** What it named its weights. */
  readonly name: string | null;
  /** See `EngineLabel`. */
  readonly realUpdates: number;
}

/** The engines of the fleet by the sets of workers that share weights. */
export class EngineTable implements WeightSource {
  /** By the names of their workers. */
  readonly sets = new Map<string, WorkerSet>();
  readonly parts: EngineTableParts;
  readonly idle: Idle;
  readonly lifecycle: Lifecycle;
  /** The router ends. What it leaves is for the next one: no other engine is paused, and no swap is over. */
  isClosed = false;
  readonly #listeners = new Set<(worker: Worker) => void>();
  readonly #loadListeners = new Set<(worker: Worker, stage: LoadStage) => void>();
  /** By URL. */
  readonly #engines = new Map<string, SwapEngine>();

  constructor(parts: EngineTableParts, deployments: readonly ConfiguredDeployment[]) {
    this.parts = parts;
    const { fleet, labels, state, gate } = parts;
    this.idle = new Idle(fleet);
    this.lifecycle = new Lifecycle(this);
    labels.judge = this.lifecycle;
    gate.snapshotOf = (worker) => this.of(worker);
    gate.isComing = () => this.#isComing();
    const map = state.open('swaps');
    for (const { snapshots, workers, 'base-identity': baseIdentity } of deployments) {
      const key = keyOf(workers);
      if (this.sets.has(key)) continue;
      const has = workers === 'all' ? () => true : hasOneOf(workers);
      const ledger = new Ledger(map, key);
      const set = new WorkerSet({ snapshots, baseIdentity, has }, ledger, this);
      set.builds.keepIn(ledger);
      this.sets.set(key, set);
    }
    this.noteWork();
    fleet.onEvent((event, worker) => {
      if (event === 'added') this.#add(worker);
      else if (event === 'removed') this.#remove(worker);
      gate.changed();
    });
  }

  /** The identity of the weights that the worker's engine has; null: not known. Changes between load and resume. */
  of(worker: Worker): string | null {
    return this.find(worker)?.snapshot ?? null;
  }

  /** The snapshots that swaps bring to the worker: the one that runs, also if it has not come to the worker, and the queued one. */
  targetsOf(worker: Worker): readonly string[] {
    const engine = this.find(worker);
    if (engine === undefined) return [];
    const { state, stage, target } = engine.status;
    const isComing = state === 'swapping' || state === 'draining' || state === 'warming' || stage === 'pending';
    return [isComing ? target : null, engine.set.waiting].filter((each) => each !== null);
  }

  weightsOf(worker: Worker): EngineWeights | null {
    return this.find(worker) ?? null;
  }

  /**
   * An answer of the engine names weights that it should not have: the engine is checked before it gets more requests.
   * @param breaks `EngineWeights.breaks` when it got the request
   */
  doubt(worker: Worker, named: string, breaks: number): void {
    const engine = this.find(worker);
    const isNew = engine?.isBusy === false && engine.breaks === breaks;
    if (isNew && !engine.fits(named, this.parts.labels.of(worker).stale))
      this.lifecycle.doubt(engine, `an answer of it names ${named}`);
  }

  onChange(listener: (worker: Worker) => void): void {
    this.#listeners.add(listener);
  }

  onLoad(listener: (worker: Worker, stage: LoadStage) => void): void {
    this.#loadListeners.add(listener);
  }

  /** Position in the ledger of the worker's deployment, oldest first; null: unknown identity. */
  positionOf(worker: Worker, identity: string): number | null {
    const set = this.find(worker)?.set;
    if (set === undefined) return null;
    const isFirst = identity === set.options.baseIdentity || identity === set.ledger.start.identity;
    return set.ledger.find(identity)?.seq ?? (isFirst ? 0 : null);
  }

  /** How many snapshots of the worker's deployment were loaded since one, up to another. Swaps that failed everywhere do not count. */
  snapshotsBetween(worker: Worker, from: string, to: string): number {
    const set = this.find(worker)?.set;
    return set === undefined ? 0 : set.ledger.loadedBetween(from, to, set.options.baseIdentity);
  }

  /** undefined: no deployment has the worker. */
  find({ engineUrl }: Worker): SwapEngine | undefined {
    return this.#engines.get(engineUrl);
  }

  /** Whether an abort at this time was caused by a swap: the engine is paused, or was resumed less than `ABORT_REPORT_MS` ago. */
  wasAbortedBySwap(worker: Worker, atMs: number): boolean {
    const state = this.find(worker)?.swap?.state;
    if (state === undefined || state.beganMs.pause === undefined) return false;
    const isOver = state.stage === 'done' || state.stage === 'error';
    return !isOver || atMs - state.beganMs[state.stage]! <= ABORT_REPORT_MS;
  }

  countsByPhase(): Map<string, number> {
    const counts = { registered: 0, warming: 0, serving: 0, quarantined: 0 } satisfies Record<EnginePhase, number>;
    for (const { phase } of this.#engines.values()) counts[phase]++;
    return new Map(Object.entries(counts));
  }

  /** When the oldest swap began that has not ended, by the monotonic clock; null: no swap is open. */
  get openSinceMs(): number | null {
    const open = [...this.sets.values()].flatMap(({ ledger: { last } }) =>
      last === null || last.endedAt !== null ? [] : [last.beganMs],
    );
    return open.length === 0 ? null : Math.min(...open);
  }

  #isComing(): boolean {
    for (const { running, waiting } of this.sets.values()) if (running !== null || waiting !== null) return true;
    return false;
  }

  workersOf(set: WorkerSet): Worker[] {
    return this.parts.fleet.workers.filter(({ engineUrl }) => set.engines.has(engineUrl));
  }

  /** This router begins no load, no swap and no return of an engine: the engines are those of the next router, which may run already. */
  get isHandedOver(): boolean {
    return this.parts.isDraining() || this.parts.owner.isTaken;
  }

  /** This router loads weights, and leaves an engine paused if it ends now. */
  get isLoading(): boolean {
    return [...this.#engines.values()].some(({ swap }) => swap?.isAtWork === true && swap.order.mover === 'router');
  }

  /** A swap has begun or is over: see `SwapOwner`. */
  noteWork(): void {
    const isAtWork = (): boolean =>
      this.openSinceMs !== null || [...this.#engines.values()].some(({ swap }) => swap?.isAtWork === true);
    const { owner, state } = this.parts;
    if (this.isClosed) return;
    if (isAtWork()) owner.isAtWork = true;
    // A router that waits for the end reads the state then.
    else
      void state.flush().then(() => {
        if (!this.isClosed) owner.isAtWork = isAtWork();
      });
  }

  async close(): Promise<void> {
    this.isClosed = true;
    this.lifecycle.close();
    for (const { builds } of this.sets.values()) builds.stop();
    for (const { swap } of this.#engines.values()) swap?.stop();
    await this.parts.state.flush();
    this.parts.owner.release();
  }

  /** How long an engine may take to answer a question. */
  get timeoutMs(): number {
    return this.parts.live.current.healthCheckTimeoutSecs * 1000;
  }

  /** The engine now has these weights, and does not generate with them yet. */
  holds(engine: SwapEngine, snapshot: LoadableSnapshot): void {
    engine.set.loaded(engine, snapshot.identity);
    this.changed(engine);
  }

  /** The engine's weights are not known: its streams end. @param hasDied it is, or will be, another process */
  lost(engine: SwapEngine, hasDied: boolean): void {
    engine.lose();
    // Its last worker may have left the fleet during the swap.
    if (engine.ranks.size > 0) this.lifecycle.bring(engine, 'quarantined', hasDied);
    this.changed(engine);
    for (const x of this.parts.inFlight()) {
      if (x.audience !== null) continue;
      for (const { worker } of x.placement?.legs ?? [])
        if (engine.ranks.has(worker)) x.activity?.workerLost?.(worker, 'the weights of the engine are not known');
    }
  }

  /** The engine's swap has come to another stage. */
  staged(engine: SwapEngine, swap: EngineSwap): void {
    engine.set.noted(engine, swap);
    const { stage } = swap.state;
    engine.setInSwap(swap.isRunning);
    this.noteWork();
    if (!swap.isRunning) this.parts.meters.ended(engine.url, swap.state);
    this.loads(engine, stage === 'load' ? 'paused' : stage === 'label' ? 'loaded' : 'over');
  }

  /** The replacement of the engine's weights has come so far. */
  loads({ ranks }: SwapEngine, stage: LoadStage): void {
    for (const worker of ranks) for (const listener of this.#loadListeners) listener(worker, stage);
  }

  /**
   * A trainer may have replaced the engine's weights past `/swap`: the name that the engine reports is its snapshot. If its weights were updated and
   * the name is that of before, they have no name.
   */
  updated(engine: SwapEngine, name: string | null, before: BeforeUpdate): void {
    const { labels, log } = this.parts;
    const isNamed = name !== null && name !== UNSET && name !== before.name;
    if (isNamed && name !== engine.snapshot) engine.set.moved(engine, name);
    else if (isNamed || labels.of(engine.worker).realUpdates === before.realUpdates) return;
    else if (engine.phase === 'quarantined') return;
    else engine.unname(name);
    log.info({ worker: engine.url, snapshot: engine.snapshot }, 'a trainer has replaced the weights of an engine');
    this.changed(engine);
  }

  /** The snapshot of the engine is another one. */
  changed(engine: SwapEngine): void {
    for (const worker of engine.ranks) for (const listener of this.#listeners) listener(worker);
    // Two engines may have the same weights now, which requests for a pair wait for.
    if (this.parts.fleet.servesPairs) this.parts.gate.changed();
  }

  #add(worker: Worker): void {
    const set = [...this.sets.values()].find(({ options }) => options.has(worker));
    if (set === undefined) return;
    let engine = set.engines.get(worker.engineUrl);
    // All its workers had left: the engine may have been restarted since.
    const isNew = engine === undefined || engine.ranks.size === 0;
    if (engine === undefined) {
      engine = new SwapEngine(worker.engineUrl, set);
      set.engines.set(worker.engineUrl, engine);
      this.#engines.set(worker.engineUrl, engine);
      set.ledger.joined(worker.engineUrl);
    }
    engine.add(worker);
    if (isNew) this.lifecycle.bring(engine, 'registered');
    else if (engine.phase !== 'serving') this.lifecycle.keepOut(engine);
    else this.lifecycle.serve(engine);
  }

  #remove(worker: Worker): void {
    const engine = this.find(worker);
    if (engine === undefined) return;
    engine.ranks.delete(worker);
    if (engine.ranks.size > 0) return;
    this.lifecycle.end(engine);
    // It stays in the table until its swap is over: a trainer may be sending weights, requests may still end, or the engine has to be resumed.
    if (engine.swap?.isRunning === true) void engine.swap.over.then(() => this.#drop(engine));
    else this.#drop(engine);
  }

  #drop(engine: SwapEngine): void {
    if (engine.ranks.size > 0) return;
    engine.swap?.stop();
    this.parts.gate.open(engine.url);
    this.#engines.delete(engine.url);
    engine.set.engines.delete(engine.url);
    engine.set.ledger.left(engine.url);
    // An interrupted swap may have waited for this engine only.
    engine.set.brought();
  }
}

/** The key of the set of all workers. */
export const ALL_WORKERS = 'all';

export const keyOf = (workers: 'all' | readonly string[]): string =>
  workers === 'all' ? ALL_WORKERS : workers.toSorted().join(' ');

const hasOneOf = (urls: readonly string[]): ((worker: Worker) => boolean) => {
  // The lookbehind makes the search linear in the number of slashes.
  const named = new Set(urls.map((url) => url.replace(/(?<!\/)\/+$/, '')));
  return ({ url, engineUrl }) => named.has(url) || named.has(engineUrl);
};

interface Wait {
  readonly workers: ReadonlySet<Worker>;
  readonly onIdle: () => void;
}

/** Calls back when the router has no request in flight at an engine. */
class Idle {
  readonly #fleet: Fleet;
  readonly #waits = new Set<Wait>();

  constructor(fleet: Fleet) {
    this.#fleet = fleet;
  }

  /** @returns stops waiting */
  whenIdle(workers: ReadonlySet<Worker>, onIdle: () => void): () => void {
    // A copy: a worker that leaves the fleet is removed from the engine's ranks, but its requests must end too.
    const wait = { workers: new Set(workers), onIdle };
    this.#waits.add(wait);
    this.#fleet.onIdle = (worker) => this.#look(worker);
    // Not in the same tick: the plan is at work.
    setImmediate(() => this.#end(wait));
    return () => this.#remove(wait);
  }

  #look(worker: Worker): void {
    for (const wait of this.#waits) if (wait.workers.has(worker)) this.#end(wait);
  }

  #end(wait: Wait): void {
    if (!this.#waits.has(wait)) return;
    for (const worker of wait.workers) if (this.#fleet.isBusy(worker)) return;
    this.#remove(wait);
    wait.onIdle();
  }

  #remove(wait: Wait): void {
    this.#waits.delete(wait);
    if (this.#waits.size === 0) this.#fleet.onIdle = null;
  }
}
