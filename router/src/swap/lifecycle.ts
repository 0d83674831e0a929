import { setTimeout as delay } from 'node:timers/promises';
import type { Fleet } from '../fleet/fleet.ts';
import type { VersionLabels } from '../fleet/version-labels.ts';
import type { WeightJudge } from '../fleet/weight-versions.ts';
import type { Worker } from '../fleet/worker.ts';
import type { Logger } from '../observe/log.ts';
import { UNSET } from '../engines/weight-label.ts';
import type { SwapEngine } from './engine.ts';

export interface LifecycleParts {
  readonly fleet: Fleet;
  readonly labels: VersionLabels;
  readonly log: Logger;
  readonly timeoutMs: () => number;
  readonly find: (worker: Worker) => SwapEngine | undefined;
  readonly onChanged: (engine: SwapEngine) => void;
}

/** An engine that does not answer is asked again after this time, doubled each time up to the maximum. */
const ASK_MS = 250;
const MAX_ASK_MS = 5_000;
/** The same for an engine that could not load the snapshot of the fleet. */
const LOAD_MS = 5_000;
const MAX_LOAD_MS = 300_000;

/**
 * Brings engines that join, were restarted, or have unknown weights to the snapshot of the fleet. They get requests only after that:
 * registered → warming → serving, or quarantined.
 */
export class Lifecycle implements WeightJudge {
  readonly #parts: LifecycleParts;
  /** Engines that are being brought to the snapshot, and what ends a wait. */
  readonly #jobs = new Map<SwapEngine, AbortController>();

  constructor(parts: LifecycleParts) {
    this.#parts = parts;
  }

  /** The engine's weights are not known to the router. */
  bring(engine: SwapEngine, phase: 'registered' | 'quarantined'): void {
    engine.phase = phase;
    this.keepOut(engine);
    if (this.#jobs.has(engine)) return;
    const ender = new AbortController();
    this.#jobs.set(engine, ender);
    const isBack = phase === 'quarantined';
    void this.#bring(engine, ender.signal, isBack)
      .catch((error: unknown) => {
        if (!ender.signal.aborted) this.#parts.log.error({ worker: engine.url, err: error }, 'engine not brought in');
      })
      .finally(() => {
        if (this.#jobs.get(engine) === ender) this.#jobs.delete(engine);
      });
  }

  /** A swap brings the engine to its snapshot, or the engine has left. */
  end(engine: SwapEngine): void {
    this.#jobs.get(engine)?.abort();
    this.#jobs.delete(engine);
  }

  close(): void {
    for (const engine of this.#jobs.keys()) this.end(engine);
  }

  keepOut(engine: SwapEngine): void {
    for (const worker of engine.ranks) {
      this.#parts.fleet.setJoining(worker, engine.phase !== 'quarantined');
      this.#parts.fleet.setReason(worker, 'version', true);
    }
  }

  /** The engine has known weights and is not paused. */
  serve(engine: SwapEngine): void {
    engine.phase = 'serving';
    for (const worker of engine.ranks) {
      this.#parts.fleet.setReason(worker, 'version', false);
      this.#parts.fleet.setJoining(worker, false);
    }
  }

  restarted(worker: Worker): void {
    const engine = this.#parts.find(worker);
    if (engine === undefined) return;
    engine.forget();
    this.#parts.onChanged(engine);
    if (engine.swap?.isRunning === true) engine.swap.died('the engine was restarted');
    else this.bring(engine, 'registered');
  }

  areServed(worker: Worker, isReturning: boolean): Promise<boolean> | null {
    const engine = this.#parts.find(worker);
    if (engine === undefined) return null;
    if (!isReturning || !isServing(engine) || engine.isBusy) return Promise.resolve(isServing(engine));
    return this.#check(engine).then(() => isServing(engine));
  }

  /** The engine failed a request or a check: it may be another process. */
  async #check(engine: SwapEngine): Promise<void> {
    const version = await this.#versionOf(engine);
    const { snapshot, isLabelled } = engine;
    if (engine.isBusy || !isServing(engine)) return;
    const isSame = version === snapshot || (!isLabelled && (version === null || version === UNSET));
    if (isSame || (isLabelled && version === null)) return;
    this.#parts.log.warn({ worker: engine.url, holds: version, expected: snapshot }, 'engine has other weights');
    engine.forget();
    this.#parts.onChanged(engine);
    this.bring(engine, 'registered');
  }

  async #versionOf(engine: SwapEngine): Promise<string | null> {
    return (await this.#parts.labels.of(engine.worker).ask(true)).name;
  }

  async #bring(engine: SwapEngine, signal: AbortSignal, isBack: boolean): Promise<void> {
    const { set } = engine;
    const pause = (ms: number): Promise<void> => delay(ms, undefined, { signal, ref: false });
    if (isBack) await pause(LOAD_MS);
    // A swap of the fleet may have brought it in meanwhile.
    for (let loadMs = LOAD_MS; !isServing(engine); loadMs = Math.min(2 * loadMs, MAX_LOAD_MS)) {
      await this.#untilKnown(engine, signal);
      await set.untilIdle();
      signal.throwIfAborted();
      const version = await this.#versionOf(engine);
      signal.throwIfAborted();
      if (isServing(engine)) break;
      const swap = await set.bring(engine, version);
      if (swap === null) this.serve(engine);
      else {
        engine.phase = 'warming';
        swap.begin();
        await swap.over;
        signal.throwIfAborted();
        if (!isServing(engine)) await pause(loadMs);
      }
    }
    set.brought();
    this.#parts.onChanged(engine);
    this.#parts.log.info({ worker: engine.url, snapshot: engine.snapshot }, 'engine has the snapshot of the fleet');
  }

  async #untilKnown(engine: SwapEngine, signal: AbortSignal): Promise<void> {
    for (let askMs = ASK_MS; ; askMs = Math.min(2 * askMs, MAX_ASK_MS)) {
      const isKnown = await engine.learn(this.#parts.timeoutMs()).then(
        () => true,
        () => false,
      );
      signal.throwIfAborted();
      if (isKnown) return;
      await delay(askMs, undefined, { signal, ref: false });
    }
  }
}

const isServing = ({ phase }: SwapEngine): boolean => phase === 'serving';
