import type { Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';
import type { Logger } from '../observe/log.ts';
import type { SwapSignal } from './deployments.ts';
import { EngineSwap, type EngineSwapParts, type LoadableSnapshot } from './engine-swap.ts';
import type { SwapEngine } from './engine.ts';
import type { Ledger, LedgerEntry } from './ledger.ts';
import type { SwapState, Transition } from './plan.ts';

export interface WorkerSetOptions {
  /** Where engines find a snapshot: a path with {identity}. */
  readonly snapshots: string;
  readonly baseIdentity: string;
  /** Whether the worker is one of the set. */
  readonly has: (worker: Worker) => boolean;
}

export interface WorkerSetParts {
  readonly swap: EngineSwapParts;
  readonly ledger: Ledger;
  readonly log: Logger;
  /** Engines that are swapped at the same time; 0: all. */
  readonly concurrency: () => number;
  /** Resolves when what was written to the ledger outlives the process. */
  readonly flush: () => Promise<void>;
}

/** A swap of the whole set. */
interface Running {
  readonly entry: LedgerEntry;
  isUndone: boolean;
}

type Order = SwapSignal & { readonly transition: Transition; readonly mover: SwapState['mover'] };

/** Workers with the same weights: one swap at a time, whatever the number of deployments that are served by them. */
export class WorkerSet {
  readonly options: WorkerSetOptions;
  readonly ledger: Ledger;
  /** By URL, in the order in which they came. */
  readonly engines = new Map<string, SwapEngine>();
  readonly #parts: WorkerSetParts;
  #running: Running | null = null;
  #waiting: Order | null = null;

  constructor(options: WorkerSetOptions, parts: WorkerSetParts) {
    this.options = options;
    this.#parts = parts;
    this.ledger = parts.ledger;
  }

  /** The swap that runs, and what follows it. */
  get running(): LedgerEntry | null {
    return this.#running?.entry ?? null;
  }

  get waiting(): string | null {
    return this.#waiting?.identity ?? null;
  }

  signal(order: Order): RouterError | null {
    const running = this.#running;
    // Clients repeat a signal whose answer they did not get.
    const isRunning = running !== null && !running.isUndone && running.entry.identity === order.identity;
    if (isRunning && this.#waiting === null) return null;
    if (running === null && this.#isAt(order.identity)) return null;
    if (running === null) void this.#run(order);
    else {
      if (this.#waiting !== null)
        this.#parts.log.info({ snapshot: this.#waiting.identity, by: order.identity }, 'queued weight swap superseded');
      this.#waiting = order;
    }
    return null;
  }

  /** Ends the swap where that is possible: engines that have loaded go back to the snapshot that the set had before. */
  undo(): void {
    this.#waiting = null;
    const running = this.#running;
    if (running === null || running.isUndone) return;
    running.isUndone = true;
    const before = this.ledger.before(running.entry)?.identity ?? this.options.baseIdentity;
    // Before the queue: what the swaps of the engines do now may end the whole swap.
    this.#waiting = { identity: before, reset: 'all', transition: running.entry.transition, mover: 'router' };
    for (const { swap } of this.engines.values())
      if (swap?.order.target.identity === running.entry.identity) swap.undo();
  }

  /** Whether there is nothing to do. */
  #isAt(identity: string): boolean {
    const engines = [...this.engines.values()];
    return (
      engines.length > 0 &&
      (this.ledger.current?.identity ?? this.options.baseIdentity) === identity &&
      engines.every((each) => isAt(each, identity))
    );
  }

  /** Whether an engine has loaded the snapshot since the ledger began. */
  hasHad(identity: string): boolean {
    return this.ledger.find(identity)?.hasLoaded === true;
  }

  /** Where an engine of the set finds these weights. */
  snapshot(identity: string, engine: SwapEngine): LoadableSnapshot {
    const entry = this.ledger.find(identity);
    const path = entry === null ? this.pathOf(identity) : entry.path;
    return { identity, path: path === '' ? engine.bootPath : path };
  }

  /** Where engines find a snapshot; '' for the weights that they were started with. */
  pathOf(identity: string): string {
    const { baseIdentity, snapshots } = this.options;
    return identity === baseIdentity ? '' : snapshots.replaceAll('{identity}', identity);
  }

  async #run(order: Order): Promise<void> {
    const { log } = this.#parts;
    const { identity, transition, reset, mover } = order;
    const path = mover === 'trainer' ? null : (order.path ?? this.pathOf(identity));
    const entry = this.ledger.add({ identity, path, transition, reset, mover }, Date.now());
    const running: Running = { entry, isUndone: false };
    this.#running = running;
    log.info({ snapshot: identity, transition, reset, engines: this.engines.size }, 'weight swap started');
    // The intention must outlive the router before an engine is paused.
    await this.#parts.flush();
    const engines: SwapEngine[] = [];
    for (const engine of this.engines.values()) {
      if (isAt(engine, identity)) engine.error = null;
      else engines.push(engine);
    }
    const lanes = this.#parts.concurrency() || engines.length;
    const next = engines.values();
    const lane = async (): Promise<void> => {
      for (const engine of next) if (!running.isUndone) await this.#swap(engine, running, order);
    };
    await Promise.all(Array.from({ length: lanes }, lane));
    entry.endedAt = Date.now();
    this.ledger.save(entry);
    const failed = Object.values(entry.engines).filter(({ error }) => error !== null).length;
    const ms = entry.endedAt - entry.startedAt;
    log[failed > 0 ? 'error' : 'info']({ snapshot: identity, ms, failed }, 'weight swap ended');
    this.#running = null;
    const waiting = this.#waiting;
    this.#waiting = null;
    if (waiting !== null) this.signal(waiting);
  }

  #swap(engine: SwapEngine, { entry }: Running, { transition, mover }: Order): Promise<void> {
    const isKnown = engine.snapshot !== null;
    const previous = engine.snapshot === null ? null : this.snapshot(engine.snapshot, engine);
    const target = this.snapshot(entry.identity, engine);
    const swap = new EngineSwap(engine, { transition, mover, target, previous, isKnown }, this.#parts.swap);
    engine.swap?.stop();
    engine.swap = swap;
    swap.begin();
    return swap.over;
  }

  /** An engine's swap has come to another stage. */
  noted(engine: SwapEngine, { state, order }: EngineSwap): void {
    const entry = this.#running?.entry;
    if (entry === undefined || order.target.identity !== entry.identity) return;
    const { stage, error, warning } = state;
    entry.engines[engine.url] = { stage, error: error ?? warning, phases: phasesOf(state) };
    if (stage === 'done' || stage === 'error') {
      engine.error = error;
      if (error !== null)
        this.#parts.log.error({ worker: engine.url, snapshot: entry.identity, error }, 'weight swap failed');
    }
  }

  /** An engine has loaded weights. @returns the swap that brought them */
  loaded(engine: SwapEngine, { identity }: LoadableSnapshot): void {
    engine.snapshot = identity;
    const entry = this.#running?.entry.identity === identity ? this.#running.entry : this.ledger.find(identity);
    if (entry === null) return;
    if (!entry.hasLoaded) {
      entry.hasLoaded = true;
      this.ledger.save(entry);
    }
    engine.namespaces.apply(entry);
  }
}

const isAt = (engine: SwapEngine, identity: string): boolean =>
  engine.snapshot === identity && engine.phase === 'serving';

/** How long each stage took, in ms. */
function phasesOf({ beganMs }: SwapState): Record<string, number> {
  const began = Object.entries(beganMs).toSorted(([, a], [, b]) => a - b);
  return Object.fromEntries(
    began.slice(0, -1).map(([stage, ms], i) => [stage, Math.round((began[i + 1]![1] - ms) * 1000) / 1000]),
  );
}
