import type { Asker } from '../engines/ask.ts';
import type { EngineFacts } from '../engines/engine.ts';
import { engines, identify } from '../engines/engines.ts';
import type { Random } from '../kit/rng.ts';
import type { Breakers } from './breakers.ts';
import type { Fleet } from './fleet.ts';
import { REASONS, type Worker } from './worker.ts';

export interface HealthOptions {
  readonly path: string;
  readonly intervalMs: number;
  readonly timeoutMs: number;
  /** Failed checks in a row that put a worker into quarantine. */
  readonly failureThreshold: number;
  /** Good checks in a row that let it out again. */
  readonly successThreshold: number;
  /** A new worker that has not answered after so long is reported. */
  readonly startupTimeoutMs: number;
  /** The longest time between two checks of a worker that never answered. */
  readonly startupIntervalMs: number;
  readonly isEnabled: boolean;
}

/** While a worker's state is in doubt it is looked at this often (at most the interval): news should travel fast. */
const DOUBT_INTERVAL_MS = 1_000;

/** `restarted`: nobody listened there for a while, so it is another process now. `identified`: what it is was found out. */
export type HealthEvent = 'identified' | 'quarantined' | 'readmitted' | 'restarted' | 'held_back' | 'not_started';

/** Checks of new workers are spread over so many milliseconds each: 500 that come at once are not asked at once. */
const SPREAD_MS = 4;

/** `failedChecks`: in a row; told of who was quarantined. */
export type OnHealthEvent = (event: HealthEvent, worker: Worker, detail: string, failedChecks?: number) => void;

/** What is known of one engine: its data-parallel ranks are well or ill together. */
interface Watch {
  /** The workers behind its address, one for each rank; an engine whose last worker is gone is not watched. */
  readonly workers: Set<Worker>;
  readonly sinceMs: number;
  failures: number;
  successes: number;
  timer: NodeJS.Timeout | null;
  isAsking: boolean;
  /** It failed a check or a request since its last good check: it may be another process now. */
  isSuspect: boolean;
  /** Nobody listened there when it was last asked. */
  isGone: boolean;
  /** It was reported that it does not start. */
  isReported: boolean;
}

/**
 * Asks every engine in turn whether it is well, spread over the interval so that a large fleet is not probed at once.
 *
 * One that comes back after a failure may hold old weights: it serves again only after enough good checks and only with the
 * weight version of those that serve, where engines tell one.
 */
export class Health {
  readonly #fleet: Fleet;
  readonly #options: HealthOptions;
  readonly #random: Random;
  readonly #breakers: Breakers;
  readonly #onEvent: OnHealthEvent;
  /** By `engineUrl`. */
  readonly #watches = new Map<string, Watch>();

  constructor(fleet: Fleet, options: HealthOptions, random: Random, breakers: Breakers, onEvent: OnHealthEvent) {
    this.#fleet = fleet;
    this.#options = options;
    this.#random = random;
    this.#breakers = breakers;
    this.#onEvent = onEvent;
    fleet.onEvent((event, worker) => {
      if (event === 'added') this.#start(worker);
      else if (event === 'removed') this.#stop(worker);
    });
  }

  /** A request could not reach this worker: look at once instead of at the next turn. */
  suspect(worker: Worker): void {
    const watch = this.#watches.get(worker.engineUrl);
    if (watch === undefined) return;
    watch.isSuspect = true;
    if (watch.isAsking || watch.failures > 0) return;
    this.#schedule(watch, 0);
  }

  /** Their weights were changed: their versions are read anew, and who was held back for an old one is looked at again. */
  async weightsChanged(workers: readonly Worker[]): Promise<void> {
    await Promise.all(
      workers.map(async (worker) => {
        if (worker.engine === null) return;
        worker.weightVersion = await engines[worker.engine].readWeightVersion(worker.asker(this.#options.timeoutMs));
      }),
    );
    for (const worker of workers) if ((worker.reasons & REASONS.version) !== 0) this.suspect(worker);
  }

  close(): void {
    for (const watch of this.#watches.values()) this.#end(watch);
    this.#watches.clear();
  }

  #start(worker: Worker): void {
    const known = this.#watches.get(worker.engineUrl);
    known?.workers.add(worker);
    if (!this.#options.isEnabled) {
      worker.isProven = true;
      this.#fleet.setReason(worker, 'version', false);
    } else if (known !== undefined) {
      // The others are proven, so their next turn may be far. An answer that is awaited counts for it too.
      if (!known.isAsking && known.successes > 0) this.#schedule(known, 0);
      return;
    }
    if (known !== undefined) return;
    const watch: Watch = {
      workers: new Set([worker]),
      sinceMs: performance.now(),
      failures: 0,
      successes: 0,
      timer: null,
      isAsking: false,
      isSuspect: false,
      isGone: false,
      isReported: false,
    };
    this.#watches.set(worker.engineUrl, watch);
    this.#schedule(watch, this.#random() * SPREAD_MS * (this.#watches.size - 1));
  }

  #stop(worker: Worker): void {
    const watch = this.#watches.get(worker.engineUrl);
    if (watch === undefined) return;
    watch.workers.delete(worker);
    if (watch.workers.size > 0) return;
    this.#end(watch);
    this.#watches.delete(worker.engineUrl);
  }

  #end(watch: Watch): void {
    watch.workers.clear();
    if (watch.timer !== null) clearTimeout(watch.timer);
  }

  #schedule(watch: Watch, delayMs: number): void {
    if (!this.#options.isEnabled) return;
    if (watch.timer !== null) clearTimeout(watch.timer);
    watch.timer = setTimeout(() => void this.#look(watch), delayMs);
  }

  async #look(watch: Watch): Promise<void> {
    watch.timer = null;
    watch.isAsking = true;
    const [worker] = watch.workers as Iterable<Worker> as [Worker];
    const asker = worker.asker(this.#options.timeoutMs);
    const problem = await this.#check(worker, asker);
    for (const each of watch.workers) each.problem = problem;
    if (problem === null) await this.#passed(watch, asker);
    else this.#failed(watch, problem);
    watch.isAsking = false;
    if (watch.workers.size === 0) return;
    if (problem === null && [...watch.workers].some(({ engine }) => engine === null)) return this.#schedule(watch, 0);
    // Up to a tenth less, at random: checks that were started together drift apart.
    this.#schedule(watch, this.#intervalOf(watch) * (1 - this.#random() / 10));
  }

  #intervalOf(watch: Watch): number {
    const { intervalMs, startupIntervalMs } = this.#options;
    const workers = [...watch.workers];
    if (watch.failures === 0 && workers.every(({ reasons }) => reasons === 0)) return intervalMs;
    const soon = Math.min(DOUBT_INTERVAL_MS, intervalMs);
    if (workers.some(({ isProven }) => isProven)) return soon;
    // Engines load for minutes: the longer it takes, the less often it is asked.
    return Math.max(soon, Math.min(startupIntervalMs, (performance.now() - watch.sinceMs) / 10));
  }

  /** @returns null when all is well, else what is wrong. */
  async #check(worker: Worker, asker: Asker): Promise<string | null> {
    let problem: string;
    try {
      const { status } = await asker(this.#options.path);
      if (status >= 200 && status < 300) return null;
      problem = `${this.#options.path} answered ${status}`;
    } catch (error) {
      problem = (error as NodeJS.ErrnoException).code ?? (error as Error).message;
    }
    const pausedPath = worker.engine === null ? null : engines[worker.engine].pausedPath;
    if (pausedPath === null) return problem;
    const paused = await asker(pausedPath).catch(() => null);
    return paused?.status === 200 ? null : problem;
  }

  async #passed(watch: Watch, asker: Asker): Promise<void> {
    watch.failures = 0;
    watch.successes++;
    for (const worker of watch.workers) this.#breakers.passedCheck(worker);
    if ([...watch.workers].some(({ engine }) => engine === null)) this.#learn(watch, await identify(asker));
    if (watch.isGone) {
      watch.isGone = false;
      for (const worker of watch.workers) {
        if (worker.isProven) this.#onEvent('restarted', worker, 'nobody listened there before');
      }
    }
    const isQuarantined = (worker: Worker) => (worker.reasons & REASONS.unhealthy) !== 0;
    if ([...watch.workers].some(isQuarantined) && watch.successes < this.#options.successThreshold) return;
    let isReturning = watch.isSuspect;
    for (const worker of watch.workers) {
      worker.isProven = true;
      isReturning ||= worker.reasons !== 0;
    }
    watch.isSuspect = false;
    const hasRightWeights = await this.#hasServingWeights(watch, asker, isReturning);
    for (const worker of watch.workers) {
      // One that was added in the meantime.
      if (worker.engine === null) continue;
      if (isQuarantined(worker) && hasRightWeights) {
        this.#breakers.readmitted(worker);
        this.#onEvent('readmitted', worker, `${watch.successes} good checks`);
      }
      this.#fleet.setReason(worker, 'version', !hasRightWeights);
      this.#fleet.setReason(worker, 'unhealthy', false);
    }
  }

  #learn(watch: Watch, facts: EngineFacts): void {
    for (const worker of watch.workers) {
      if ((worker.reasons & REASONS.ranks) === 0) continue;
      if (facts.dpSize !== null && facts.dpSize > 1) this.#fleet.splitRanks(worker, facts.dpSize);
      else this.#fleet.setReason(worker, 'ranks', false);
    }
    for (const worker of watch.workers) {
      if (worker.engine !== null) continue;
      worker.engine = facts.kind;
      worker.weightVersion = facts.weightVersion;
      worker.kvTokens = facts.kvTokens;
      this.#onEvent('identified', worker, facts.kind);
    }
  }

  /** Compares with fresh answers of those that serve: a swap may have gone past the router. */
  async #hasServingWeights(watch: Watch, asker: Asker, isReturning: boolean): Promise<boolean> {
    const [first] = watch.workers as Iterable<Worker> as [Worker | undefined];
    if (first === undefined || first.engine === null) return true;
    const version = await engines[first.engine].readWeightVersion(asker);
    for (const worker of watch.workers) worker.weightVersion = version;
    if (!isReturning) return true;
    await Promise.all(
      [...this.#watches.values()].filter((other) => other !== watch).map((other) => this.#refreshVersion(other)),
    );
    const serving = this.#fleet.servingVersion(first.engineUrl);
    const isRight = serving === null || version === null || version === serving;
    for (const worker of watch.workers) {
      const heldBackFor = isRight ? null : version;
      if (heldBackFor !== null && worker.heldBackFor !== heldBackFor) {
        this.#onEvent('held_back', worker, `holds weights "${version}", the fleet serves "${serving}"`);
      }
      worker.heldBackFor = heldBackFor;
    }
    return isRight;
  }

  /** Asks an engine that serves. */
  async #refreshVersion(watch: Watch): Promise<void> {
    const serving = [...watch.workers].find((worker) => this.#fleet.isEligible(worker) && worker.engine !== null);
    if (serving === undefined) return;
    const version = await engines[serving.engine!].readWeightVersion(serving.asker(this.#options.timeoutMs));
    for (const worker of watch.workers) worker.weightVersion = version;
  }

  #failed(watch: Watch, problem: string): void {
    watch.successes = 0;
    watch.failures++;
    watch.isSuspect = true;
    watch.isGone ||= problem === 'ECONNREFUSED';
    const { startupTimeoutMs, failureThreshold } = this.#options;
    for (const worker of watch.workers) {
      if (!worker.isProven && !watch.isReported && performance.now() - watch.sinceMs > startupTimeoutMs) {
        watch.isReported = true;
        this.#onEvent('not_started', worker, `no good check in ${startupTimeoutMs / 1000} s: ${problem}`);
      }
      if ((worker.reasons & REASONS.unhealthy) !== 0) continue;
      // One that never answered gets no benefit of the doubt: its first failure is enough.
      if (watch.failures < failureThreshold && worker.isProven) continue;
      this.#fleet.setReason(worker, 'unhealthy', true);
      this.#onEvent('quarantined', worker, problem, watch.failures);
    }
  }
}
