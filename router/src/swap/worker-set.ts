import type { Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';
import { EngineSwap, type SwapOrder } from './engine-swap.ts';
import type { EngineTable } from './engine-table.ts';
import { type SwapEngine, byTurns } from './engine.ts';
import { Builds } from './hot-load/builds.ts';
import { Joining } from './joining.ts';
import { mustDrain } from './load-calls.ts';
import type { Ledger, LedgerEntry, SwapSignal } from './ledger.ts';
import { phasesOf } from './plan.ts';
import { SnapshotPlaces } from './snapshot-places.ts';

export interface WorkerSetOptions {
  /** Where engines find a snapshot: a path with {identity}. */
  readonly snapshots: string;
  readonly baseIdentity: string;
  /** Whether the worker is one of the set. */
  readonly has: (worker: Worker) => boolean;
}

const HANDED_OVER =
  'This router begins no swap: it ends, or another router that was started later with its --data-dir does that. Repeat the request on a new connection.';

/** Workers with the same weights: one swap at a time, whatever the number of deployments that are served by them. */
export class WorkerSet {
  readonly options: WorkerSetOptions;
  readonly ledger: Ledger;
  readonly places: SnapshotPlaces;
  readonly builds = new Builds();
  /** By URL, in the order in which they joined. */
  readonly engines = new Map<string, SwapEngine>();
  /** A trainer has paused engines of the set past `/swap`. */
  isHeld = false;
  readonly #table: EngineTable;
  readonly #joining: Joining;
  /** The swap that runs. */
  #running: LedgerEntry | null = null;
  /** The running swap undoes another one. */
  #isUndoing = false;
  #waiting: SwapSignal | null = null;
  /** Resolves when engines that join need not wait for the running swap any more. */
  #runs = Promise.resolve();
  /** The same for the one that an earlier router left. */
  readonly #leftOver = Promise.withResolvers<void>();
  #begun = Promise.withResolvers<void>();
  #released = Promise.withResolvers<void>();

  constructor(options: WorkerSetOptions, ledger: Ledger, table: EngineTable) {
    this.options = options;
    this.#table = table;
    this.ledger = ledger;
    this.places = new SnapshotPlaces(options, ledger);
    this.#joining = new Joining(this);
    const { interrupted } = this.#joining;
    // Of a trainer's swap only the trainer knows the weights; of an undone swap some engines may have loaded the target.
    if (interrupted?.mover === 'trainer' || interrupted?.isUndone === true) {
      this.#running = interrupted;
      this.#runs = this.#leftOver.promise;
    }
    this.#waiting = ledger.queued;
    if (interrupted?.isUndone === true) this.#waiting ??= this.#orderToUndo(interrupted);
    this.#begun.resolve();
  }

  /**
   * Resolves when an engine that joins need not wait for a swap. Rejects when it is aborted: a swap that runs when the router ends is over, and stays
   * the one that runs.
   * @returns the last swap until then, for `hasBegunSince`
   */
  async untilIdle(engine: SwapEngine, signal: AbortSignal): Promise<LedgerEntry | null> {
    const { interrupted } = this.#joining;
    for (;;) {
      signal.throwIfAborted();
      if (this.isHeld) await this.#released.promise;
      else if (this.#running !== null && (this.#running !== interrupted || this.#joining.waits(engine)))
        await this.#runs;
      else return this.ledger.last;
    }
  }

  /**
   * Whether a swap or a trainer's pause has begun since `untilIdle`. They leave out engines that are not known yet, so an engine that has joined by
   * what was found before may have weights that the fleet replaces.
   */
  hasBegunSince(last: LedgerEntry | null): boolean {
    return this.isHeld || this.ledger.last !== last;
  }

  /** See `Joining`. */
  untilAsked(): Promise<void> {
    return this.#joining.untilAsked(this.#table.timeoutMs);
  }

  /** Resolves when the swaps of the engines have begun. */
  get begun(): Promise<void> {
    return this.#begun.promise;
  }

  /** Swaps wait until `release` is called. */
  hold(): void {
    if (this.isHeld) return;
    this.isHeld = true;
    this.#released = Promise.withResolvers();
  }

  release(): void {
    if (!this.isHeld) return;
    this.isHeld = false;
    this.#released.resolve();
    this.#runWaiting();
  }

  /** The swap that runs, and what follows it. */
  get running(): LedgerEntry | null {
    return this.#running;
  }

  get waiting(): string | null {
    return this.#waiting?.identity ?? null;
  }

  /** Why a client can begin no swap here; null: it can. */
  get refusal(): RouterError | null {
    return this.#table.isHandedOver ? new RouterError('shutting_down', HANDED_OVER) : null;
  }

  /** Starts the swap, or queues it after the running one; a newer signal replaces a queued one. */
  signal(order: SwapSignal): void {
    this.builds.drop();
    this.#follow(order);
  }

  #follow(order: SwapSignal): void {
    this.#take(order);
    this.ledger.saveQueued(this.#waiting);
  }

  #take(order: SwapSignal): void {
    const running = this.#running;
    // Clients repeat a signal whose answer they did not get.
    const isRunning = running !== null && !running.isUndone && running.identity === order.identity;
    if (isRunning && this.#waiting === null) return;
    // What a trainer that has paused engines leaves is not known yet.
    const canRun = running === null && !this.isHeld && !this.#table.isHandedOver;
    // One that an earlier router has left.
    if (canRun) this.#waiting = null;
    if (canRun && order.mover === 'router' && this.#isAt(order.identity)) {
      // What failed before is not wanted any more. Of an undone swap clients learn by its error that it does not come.
      if (order.undoes !== true) for (const engine of this.engines.values()) engine.error = null;
    } else if (canRun) this.#runs = this.#run(order);
    else {
      if (this.#waiting !== null)
        this.#table.parts.log.info(
          { snapshot: this.#waiting.identity, by: order.identity },
          'queued weight swap superseded',
        );
      this.#waiting = order;
      // Requests may wait for what is not coming any more.
      this.#table.parts.gate.changed();
    }
  }

  /** Ends the swap where that is possible: engines that have loaded go back to the snapshot that the set had before. */
  async undo(): Promise<void> {
    this.builds.drop();
    const running = this.#running;
    // Set before the engines' swaps are undone: that may end the swap of the set, which starts the queued one.
    // Clients repeat it when they did not get the response: to undo that would load the undone snapshot again.
    this.#waiting = running === null || this.#isUndoing ? null : this.#orderToUndo(running);
    this.ledger.saveQueued(this.#waiting);
    // Requests may wait for the swap that was queued.
    this.#table.parts.gate.changed();
    if (running === null || running.isUndone || this.#isUndoing) return this.flush();
    running.isUndone = true;
    this.ledger.save(running);
    for (const { swap } of this.engines.values()) if (swap?.order.target.identity === running.identity) swap.undo();
    // One that an earlier router left may be at work at no engine.
    this.#leftOver.resolve();
    this.brought();
    await this.flush();
  }

  /** Resolves when what was signalled outlives the process. */
  flush(): Promise<void> {
    return this.#table.parts.state.flush();
  }

  #orderToUndo(entry: LedgerEntry): SwapSignal {
    const identity = this.places.identityBefore(entry);
    const path = this.places.pathBefore(entry);
    const whole = this.places.wholeOf(this.ledger.before(entry));
    return { identity, path, whole, reset: 'all', transition: entry.transition, mover: 'router', undoes: true };
  }

  /** Whether there is nothing to do. */
  #isAt(identity: string): boolean {
    const engines = [...this.engines.values()];
    const { current } = this.ledger;
    return (
      engines.length > 0 &&
      (current?.identity ?? this.options.baseIdentity) === identity &&
      engines.every((each) => isAt(each, identity, this.places.wholeOf(current)))
    );
  }

  /** Whether an engine has loaded the snapshot since the ledger began. */
  hasHad(identity: string): boolean {
    return this.ledger.find(identity)?.hasLoaded === true;
  }

  async #run(order: SwapSignal): Promise<void> {
    const { log, live } = this.#table.parts;
    const { identity, transition, reset, mover, whole = this.places.wholeOf(this.ledger.current) } = order;
    const path = mover === 'trainer' ? null : (order.path ?? this.places.pathOf(identity));
    const beganMs = performance.now();
    const entry = this.ledger.add({ identity, path, transition, reset, mover, whole }, Date.now());
    this.#running = entry;
    this.#table.noteWork();
    this.#isUndoing = order.undoes === true;
    this.#begun = Promise.withResolvers();
    log.info({ snapshot: identity, transition, reset, engines: this.engines.size }, 'weight swap started');
    // The intention must outlive the router before an engine is paused.
    await this.flush();
    const engines: SwapEngine[] = [];
    for (const engine of this.engines.values()) {
      if (mover !== 'router' || !isAt(engine, identity, whole)) engines.push(engine);
      else {
        engine.error = null;
        // The ledger may have been cleared since it has loaded them.
        entry.hasLoaded = true;
      }
    }
    const lanes = (mover === 'router' && live.current.swapConcurrency) || engines.length;
    const next = byTurns(engines).values();
    const lane = async (): Promise<void> => {
      for (const engine of next) {
        while (this.isHeld) await this.#released.promise;
        // One that is joining, perhaps again since the begin, loads when it is known.
        if (this.#table.isClosed || entry.isUndone || engine.ranks.size === 0 || engine.isJoining) continue;
        await this.#swap(engine, entry, order);
      }
    };
    const ends = Array.from({ length: lanes }, lane);
    this.#begun.resolve();
    await Promise.all(ends);
    if (this.#table.isClosed) return;
    entry.endedAt = Date.now();
    this.ledger.save(entry);
    this.#table.noteWork();
    const failed = [...entry.engines.values()].filter(({ error }) => error !== null).length;
    const ms = Math.round(performance.now() - beganMs);
    log[failed > 0 ? 'error' : 'info']({ snapshot: identity, ms, failed }, 'weight swap ended');
    this.#running = null;
    this.#isUndoing = false;
    this.#runWaiting();
    this.#table.parts.gate.changed();
  }

  #runWaiting(): void {
    const waiting = this.#waiting;
    if (waiting === null) return;
    this.#waiting = null;
    // A snapshot that is being made may be newer.
    this.#follow(waiting);
  }

  async #swap(engine: SwapEngine, entry: LedgerEntry, { transition, mover }: SwapSignal): Promise<void> {
    const previous = engine.snapshot === null ? null : this.places.of(engine.snapshot, engine, engine.whole);
    const target = this.places.of(entry.identity, engine);
    const swap = this.#start(engine, {
      transition,
      drains: mover === 'router' && mustDrain(engine),
      mover,
      target,
      previous,
      weights: previous === null ? 'unknown' : 'previous',
      hasTarget: false,
      was: { name: this.#table.parts.labels.of(engine.worker).newest?.name ?? null, start: engine.startedAt },
    });
    await this.begin(engine, swap);
    await swap.over;
  }

  #start(engine: SwapEngine, order: SwapOrder): EngineSwap {
    engine.swap?.stop();
    const swap = new EngineSwap(engine, order, this.#table);
    engine.swap = swap;
    void swap.over.then(() => this.#table.noteWork());
    return swap;
  }

  /**
   * An engine has joined or returned. @param version what it reports @param last what `untilIdle` returned before it was asked
   * @returns how it gets the snapshot of the fleet; null: it has it; `late`: a swap or a trainer's pause has begun meanwhile
   */
  async bring(
    engine: SwapEngine,
    version: string | null,
    last: LedgerEntry | null,
  ): Promise<EngineSwap | 'late' | null> {
    const order = await this.#joining.orderFor(engine, version, () => this.hasBegunSince(last));
    if (order === null || order === 'late') return order;
    // From now on a swap of the fleet replaces this one.
    engine.phase = 'warming';
    return this.#start(engine, order);
  }

  /** Begins the swap of an engine. That it is at work there must outlive the router before the engine is paused. */
  async begin(engine: SwapEngine, swap: EngineSwap): Promise<void> {
    this.noted(engine, swap);
    await this.flush();
    swap.begin();
  }

  /**
   * An engine was brought in, or could not be, or has left. What an earlier router left does not wait for engines that do not answer: a swap is over
   * when it is at work at no engine any more, and the signal that waited runs.
   */
  brought(): void {
    const phases = new Set(Array.from(this.engines.values(), ({ phase }) => phase));
    const isNoneKnown = phases.size === 1 && phases.has('registered');
    if (isNoneKnown || phases.has('warming')) return;
    const entry = this.#joining.interrupted;
    if (entry !== null && entry.endedAt === null && !this.#joining.awaitsTrainer) {
      entry.endedAt = Date.now();
      this.ledger.save(entry);
      if (this.#running === entry) this.#running = null;
      this.#leftOver.resolve();
      this.#table.noteWork();
      // Requests may wait for what is not coming any more.
      this.#table.parts.gate.changed();
    }
    if (this.#running === null && !this.isHeld) this.#runWaiting();
  }

  /** The trainer has ended its swap, and engines go on. */
  endedByTrainer(): void {
    this.#joining.hasTrainerEnded = true;
    this.brought();
  }

  /** An engine's swap has come to another stage. */
  noted(engine: SwapEngine, { state, order }: EngineSwap): void {
    const { stage, error, warning } = state;
    const isOver = stage === 'done' || stage === 'error';
    if (isOver) {
      engine.error = error;
      if (error !== null)
        this.#table.parts.log.error(
          { worker: engine.url, snapshot: order.target.identity, error },
          'weight swap failed',
        );
    }
    const entry = this.#entryOf(order.target.identity);
    if (entry === null) return;
    const beganAt = Math.round(performance.timeOrigin + (state.beganMs.gate ?? 0));
    const how = { stage, error: error ?? warning, phases: phasesOf(state), beganAt };
    this.ledger.note(entry, engine.url, { ...how, ...order.was });
  }

  /** A trainer has replaced the engine's weights past `/swap`. Nothing is known of caches: all are taken for old. */
  moved(engine: SwapEngine, identity: string): void {
    const { last } = this.ledger;
    if (last === null || last.identity !== identity || last.mover !== 'trainer') {
      const how = { path: null, transition: 'async', reset: 'all', mover: 'trainer' } as const;
      this.ledger.add({ ...how, identity, whole: identity }, Date.now()).endedAt = Date.now();
    }
    engine.isLabelled = true;
    engine.whole = identity;
    this.loaded(engine, identity);
  }

  #entryOf(identity: string): LedgerEntry | null {
    return this.#running?.identity === identity ? this.#running : this.ledger.find(identity);
  }

  /** An engine has loaded weights. */
  loaded(engine: SwapEngine, identity: string): void {
    engine.snapshot = identity;
    this.ledger.noteKeptName(engine.url, null);
    const entry = this.#entryOf(identity);
    if (entry === null) return engine.namespaces.apply(this.ledger.start);
    if (!entry.hasLoaded) {
      entry.hasLoaded = true;
      if (engine.whole === identity) entry.whole = identity;
      this.ledger.save(entry);
    }
    engine.namespaces.apply(entry);
  }
}

/** @param whole what is under the snapshot, if it is an adapter */
const isAt = (engine: SwapEngine, identity: string, whole: string): boolean =>
  engine.snapshot === identity && engine.phase === 'serving' && (engine.whole === identity || engine.whole === whole);
