import { controlOf } from '../engines/controls.ts';
import { engines } from '../engines/engines.ts';
import type { Worker } from '../fleet/worker.ts';
import type { ControlHook } from '../forward/control/fan-out.ts';
import type { BeforeUpdate, EngineTable } from './engine-table.ts';
import type { EnginePhase, SwapEngine } from './engine.ts';

/** How often paused engines are asked whether they run again: their trainer may resume them past the router. */
const LOOK_MS = 1_000;

/** What a pause or an update has begun with at an engine, and what came since. */
interface Before extends BeforeUpdate {
  /** A call has replaced weights. */
  hasReplaced: boolean;
  /** A call has failed that may change weights. */
  hasFailed: boolean;
}

/**
 * A pause and a resume that a trainer sends through the router, without `/swap/begin`: requests wait in the router between them, and the
 * snapshot is what the engines report at the end. There is no time limit: a training step may take an hour.
 */
export class ControlBrackets implements ControlHook {
  readonly #table: EngineTable;
  readonly #held = new Set<SwapEngine>();
  /** Of the last pause or update. */
  readonly #before = new WeakMap<SwapEngine, Before>();
  #timer: NodeJS.Timeout | null = null;

  constructor(table: EngineTable) {
    this.#table = table;
  }

  async before(path: string, workers: readonly Worker[]): Promise<void> {
    const control = controlOf(path);
    if (control?.pauses === 'generation') {
      for (const worker of workers) this.#hold(worker);
      // The next router must know who has paused them.
      await this.#table.parts.state.flush();
    }
    // Before the first token with the new weights.
    if (control?.resumes === 'generation') await Promise.all(this.#heldOf(workers).map((engine) => this.#read(engine)));
    if (control?.changesVersion !== true) return;
    for (const worker of workers) {
      const engine = this.#table.find(worker);
      if (engine === undefined || engine.isHeldByTrainer) continue;
      // Also at an engine that is not free now: it may have joined by the end.
      if (engine.updates === 0) this.#begin(engine);
      if (this.#free(worker) === null) continue;
      // Requests in flight get the new weights at a place that is not known.
      engine.breaks++;
      engine.updates++;
    }
  }

  async after(path: string, done: readonly Worker[], failed: readonly Worker[]): Promise<void> {
    const control = controlOf(path);
    if (control?.pauses === 'generation') for (const engine of this.#heldOf(failed)) this.#end(engine);
    if (control?.resumes === 'generation') {
      for (const engine of this.#heldOf(done)) this.#end(engine);
      await Promise.all(this.#heldOf(failed).map((engine) => this.#endUnreachable(engine, () => true)));
    }
    if (control?.changesVersion !== true) return;
    for (const engine of this.#heldOf(done)) this.#before.get(engine)!.hasReplaced ||= control.flushes === true;
    for (const engine of this.#heldOf(failed)) this.#before.get(engine)!.hasFailed = true;
    // An update without a pause. One that failed may have changed the weights, too.
    const updated = [...done, ...failed].flatMap((worker) => this.#free(worker) ?? []);
    await Promise.all(updated.map((engine) => this.#read(engine)));
    for (const worker of [...done, ...failed]) {
      const engine = this.#table.find(worker);
      if (engine !== undefined && engine.updates > 0) engine.updates--;
    }
  }

  close(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
  }

  /** The engine, unless a swap of the router is at work there or it is held already. */
  #free(worker: Worker, phases: readonly EnginePhase[] = ['serving']): SwapEngine | null {
    const engine = this.#table.find(worker);
    if (engine === undefined || engine.isHeldByTrainer || engine.swap?.isRunning === true) return null;
    return phases.includes(engine.phase) ? engine : null;
  }

  #heldOf(workers: readonly Worker[]): SwapEngine[] {
    const found = new Set(workers.map((worker) => this.#table.find(worker)));
    return [...this.#held].filter((engine) => found.has(engine));
  }

  #hold(worker: Worker): void {
    const engine = this.#free(worker, ['serving', 'quarantined']);
    if (engine === null) return;
    engine.isHeldByTrainer = true;
    this.#begin(engine);
    engine.setInSwap(true);
    engine.set.ledger.noteHeldName(engine.url, this.#before.get(engine)!.name ?? '');
    this.#held.add(engine);
    this.#table.loads(engine, 'paused');
    engine.set.hold();
    this.#table.parts.gate.close(engine.url, 'hold');
    this.#timer ??= setInterval(() => void this.#look(), LOOK_MS).unref();
  }

  #end(engine: SwapEngine): void {
    if (!this.#held.delete(engine)) return;
    this.#table.loads(engine, 'over');
    engine.isHeldByTrainer = false;
    engine.setInSwap(false);
    engine.set.ledger.noteHeldName(engine.url, null);
    if (engine.phase === 'quarantined' && engine.snapshot !== null) this.#table.lifecycle.readmit(engine);
    this.#table.parts.gate.open(engine.url);
    if ([...this.#held].every(({ set }) => set !== engine.set)) engine.set.release();
    if (this.#held.size > 0 || this.#timer === null) return;
    clearInterval(this.#timer);
    this.#timer = null;
  }

  /** An engine that has died or does not answer must not hold up the others: it is brought in anew. @returns whether it is over there */
  async #endUnreachable(engine: SwapEngine, isGone: (error: NodeJS.ErrnoException) => boolean): Promise<boolean> {
    const isOver = await engine.learn(this.#table.timeoutMs).then(() => false, isGone);
    if (!isOver || !this.#held.has(engine)) return isOver;
    this.#table.lifecycle.restarted(engine.worker);
    this.#end(engine);
    return true;
  }

  #begin(engine: SwapEngine): void {
    const { newest, realUpdates } = this.#table.parts.labels.of(engine.worker);
    const name = (engine.isLabelled ? engine.snapshot : null) ?? newest?.name ?? null;
    this.#before.set(engine, { name, realUpdates, hasReplaced: false, hasFailed: false });
  }

  /** What the engine reports now is its snapshot: see `EngineTable.updated`. */
  async #read(engine: SwapEngine): Promise<void> {
    if (hasChanged(engine)) return;
    if (engine.isHeldByTrainer) this.#table.loads(engine, 'loaded');
    const name = await this.#table.parts.labels.nameOf(engine.worker);
    const before = this.#before.get(engine);
    // Its last worker has left and joined again since then.
    if (before === undefined) return this.#table.lifecycle.doubt(engine, 'its weights were updated while it joined');
    // Weights that may be half written are known again when all of them were replaced.
    if (engine.phase === 'quarantined' && (!before.hasReplaced || before.hasFailed)) return;
    this.#table.updated(engine, name, before);
  }

  async #look(): Promise<void> {
    await Promise.all(
      Array.from(this.#held, async (engine) => {
        if (hasChanged(engine)) return this.#end(engine);
        if (await this.#endUnreachable(engine, ({ code }) => code === 'ECONNREFUSED')) return;
        const ask = engine.worker.asker(this.#table.timeoutMs);
        const { isPaused, mayBePaused } = await engines[engine.kind!].readSigns(ask);
        if (isPaused === true || mayBePaused || (isPaused === null && engine.kind === 'vllm')) return;
        await this.#read(engine);
        this.#end(engine);
      }),
    );
  }
}

/** Whether the engine has left the fleet or was restarted: the trainer's pause is over then. */
const hasChanged = ({ ranks, phase }: SwapEngine): boolean =>
  ranks.size === 0 || (phase !== 'serving' && phase !== 'quarantined');
