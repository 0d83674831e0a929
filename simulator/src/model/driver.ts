/**
 * Runs a scheduler on the wall clock. A step's tokens are delivered when its time is over; the next step starts where
 * the last one ended, not when the timer fired, so late timers do not add up. What a longer stop of the process would
 * have given is not made up for: tokens of seconds would come at once. At time scale 0 no timer is set: steps run in
 * slices, and the event loop runs between them.
 */

import type { Scheduler, Step } from './scheduler.ts';
import type { Sequence } from './sequence.ts';

/** The longest run of steps before the event loop runs. */
const sliceMs = 4;
/** A step begins at most so long before now. */
const lateMs = 50;

export class Driver {
  readonly #scheduler: Scheduler;
  readonly #timeScale: number;
  readonly #deliver: (progressed: Sequence[]) => void;
  #state: 'idle' | 'scheduled' | 'running' | 'stopped' = 'idle';
  #pending: Step | null = null;
  #dueMs = 0;
  #timer: NodeJS.Timeout | undefined;
  #immediate: NodeJS.Immediate | undefined;
  #whenDelivered: (() => void)[] = [];

  constructor(scheduler: Scheduler, timeScale: number, deliver: (progressed: Sequence[]) => void) {
    this.#scheduler = scheduler;
    this.#timeScale = timeScale;
    this.#deliver = deliver;
  }

  /** To be called after giving the scheduler something to do. */
  kick(): void {
    if (this.#state !== 'idle') return;
    this.#dueMs = performance.now();
    this.#yield();
  }

  /** Resolves when the tokens of the step that runs are delivered. */
  delivered(): Promise<void> {
    if (this.#pending === null) return Promise.resolve();
    return new Promise((resolve) => this.#whenDelivered.push(resolve));
  }

  stop(): void {
    this.#state = 'stopped';
    clearTimeout(this.#timer);
    clearImmediate(this.#immediate);
  }

  #yield(): void {
    this.#state = 'scheduled';
    this.#immediate = setImmediate(() => this.#run());
  }

  #run(): void {
    this.#state = 'running';
    const sliceEndMs = performance.now() + sliceMs;
    for (;;) {
      const nowMs = performance.now();
      if (this.#pending) {
        if (this.#dueMs > nowMs) {
          this.#state = 'scheduled';
          this.#timer = setTimeout(() => this.#run(), Math.ceil(this.#dueMs - nowMs));
          return;
        }
        const { progressed } = this.#pending;
        this.#pending = null;
        this.#deliver(progressed);
        for (const resolve of this.#whenDelivered.splice(0)) resolve();
        if (this.#isStopped()) return;
      }
      if (nowMs > sliceEndMs) return this.#yield();
      if (this.#timeScale > 0) this.#dueMs = Math.max(this.#dueMs, nowMs - lateMs);
      this.#pending = this.#scheduler.step(this.#dueMs);
      if (!this.#pending) {
        this.#state = 'idle';
        return;
      }
      this.#dueMs += this.#pending.durationMs * this.#timeScale;
    }
  }

  // A method, because the compiler otherwise assumes the state from before the call.
  #isStopped(): boolean {
    return this.#state === 'stopped';
  }
}
