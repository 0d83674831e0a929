import { controlOf } from '../engines/controls.ts';
import { engines } from '../engines/engines.ts';
import { UNSET } from '../engines/weight-label.ts';
import type { VersionLabels } from '../fleet/version-labels.ts';
import type { Worker } from '../fleet/worker.ts';
import type { ControlHook } from '../forward/control/fan-out.ts';
import type { Logger } from '../observe/log.ts';
import type { SwapEngine } from './engine.ts';
import type { Gate } from './gate.ts';
import type { WorkerSet } from './worker-set.ts';

export interface ControlBracketsParts {
  readonly gate: Gate;
  readonly labels: VersionLabels;
  readonly log: Logger;
  readonly timeoutMs: () => number;
  readonly find: (worker: Worker) => { readonly engine: SwapEngine; readonly set: WorkerSet } | undefined;
  readonly onChanged: (engine: SwapEngine) => void;
}

/** How often paused engines are asked whether they run again: their trainer may resume them past the router. */
const LOOK_MS = 1_000;

interface Held {
  readonly engine: SwapEngine;
  readonly set: WorkerSet;
  readonly worker: Worker;
}

/**
 * A pause and a resume that a trainer sends through the router, without `/swap/begin`: requests wait in the router between them, and the
 * snapshot is what the engines report at the end. There is no time limit: a training step may take an hour.
 */
export class ControlBrackets implements ControlHook {
  readonly #parts: ControlBracketsParts;
  readonly #held = new Map<SwapEngine, Held>();
  #timer: NodeJS.Timeout | null = null;

  constructor(parts: ControlBracketsParts) {
    this.#parts = parts;
  }

  async before(path: string, workers: readonly Worker[]): Promise<void> {
    const control = controlOf(path);
    if (control?.pauses === 'generation') for (const worker of workers) this.#hold(worker);
    // Before the first token with the new weights.
    if (control?.resumes === 'generation') await Promise.all(this.#heldOf(workers).map((held) => this.#read(held)));
  }

  async after(path: string, done: readonly Worker[], failed: readonly Worker[]): Promise<void> {
    const control = controlOf(path);
    if (control?.pauses === 'generation') for (const held of this.#heldOf(failed)) this.#end(held);
    if (control?.resumes === 'generation') for (const held of this.#heldOf(done)) this.#end(held);
    if (control?.changesVersion !== true) return;
    // An update without a pause: the engine has finished its requests before, and goes on.
    const changed = done.flatMap((worker) => this.#free(worker) ?? []);
    await Promise.all(changed.map((each) => this.#read(each)));
  }

  close(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
  }

  /** The engine, unless a swap of the router is at work there or it is held already. */
  #free(worker: Worker): Held | null {
    const found = this.#parts.find(worker);
    if (found === undefined || found.engine.isBusy || found.engine.phase !== 'serving') return null;
    return { ...found, worker };
  }

  #heldOf(workers: readonly Worker[]): Held[] {
    return workers.flatMap((worker) => {
      const found = this.#parts.find(worker);
      return found === undefined ? [] : (this.#held.get(found.engine) ?? []);
    });
  }

  #hold(worker: Worker): void {
    const held = this.#free(worker);
    if (held === null) return;
    held.engine.isHeldByTrainer = true;
    held.engine.standsStill(true);
    this.#held.set(held.engine, held);
    held.set.hold();
    this.#parts.gate.close(held.engine.url, 'hold');
    this.#timer ??= setInterval(() => void this.#look(), LOOK_MS).unref();
  }

  #end({ engine, set }: Held): void {
    if (!this.#held.delete(engine)) return;
    engine.isHeldByTrainer = false;
    engine.standsStill(false);
    this.#parts.gate.open(engine.url);
    if ([...this.#held.values()].every((other) => other.set !== set)) set.release();
    if (this.#held.size > 0 || this.#timer === null) return;
    clearInterval(this.#timer);
    this.#timer = null;
  }

  /** What the engine reports now is its snapshot. */
  async #read({ engine, set, worker }: Held): Promise<void> {
    if (hasChanged(engine)) return;
    const { name } = await this.#parts.labels.of(worker).ask(true);
    if (name === null || name === UNSET || name === engine.snapshot) return;
    set.moved(engine, name);
    this.#parts.log.info({ worker: engine.url, snapshot: name }, 'a trainer has replaced the weights of an engine');
    this.#parts.onChanged(engine);
  }

  async #look(): Promise<void> {
    await Promise.all(
      Array.from(this.#held.values(), async (held) => {
        const { engine, worker } = held;
        if (hasChanged(engine)) return this.#end(held);
        const { isPaused, mayBePaused } = await engines[engine.kind!].readSigns(worker.asker(this.#parts.timeoutMs()));
        if (isPaused === true || mayBePaused || (isPaused === null && engine.kind === 'vllm')) return;
        await this.#read(held);
        this.#end(held);
      }),
    );
  }
}

/** It has left the fleet, or is another process: the trainer has not paused it. */
const hasChanged = ({ ranks, phase }: SwapEngine): boolean => ranks.size === 0 || phase !== 'serving';
