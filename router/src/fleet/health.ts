import type { Asker } from '../engines/ask.ts';
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

interface Watch {
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
 * Asks every worker in turn whether it is well, spread over the interval so that a large fleet is not probed at once.
 *
 * A worker that comes back after a failure may hold old weights: it serves again only after enough good checks and only
 * with the weight version of those that serve, where engines tell one.
 */
export class Health {
  readonly #fleet: Fleet;
  readonly #options: HealthOptions;
  readonly #random: Random;
  readonly #breakers: Breakers;
  readonly #onEvent: (event: HealthEvent, worker: Worker, detail: string) => void;
  readonly #watches = new Map<Worker, Watch>();

  constructor(
    fleet: Fleet,
    options: HealthOptions,
    random: Random,
    breakers: Breakers,
    onEvent: (event: HealthEvent, worker: Worker, detail: string) => void,
  ) {
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
    const watch = this.#watches.get(worker);
    if (watch === undefined) return;
    watch.isSuspect = true;
    if (watch.isAsking || watch.failures > 0) return;
    this.#schedule(worker, watch, 0);
  }

  /** Their weights were changed: their versions are read anew, and who was held back for an old one is looked at again. */
  async weightsChanged(workers: readonly Worker[]): Promise<void> {
    await Promise.all(
      workers.map(async (worker) => {
        if (worker.engine === null) return;
        worker.weightVersion = await engines[worker.engine].readWeightVersion(this.#asker(worker));
      }),
    );
    for (const worker of workers) if ((worker.reasons & REASONS.version) !== 0) this.suspect(worker);
  }

  close(): void {
    for (const worker of this.#watches.keys()) this.#stop(worker);
  }

  #start(worker: Worker): void {
    const watch: Watch = {
      sinceMs: performance.now(),
      failures: 0,
      successes: 0,
      timer: null,
      isAsking: false,
      isSuspect: false,
      isGone: false,
      isReported: false,
    };
    this.#watches.set(worker, watch);
    if (this.#options.isEnabled) this.#schedule(worker, watch, this.#random() * SPREAD_MS * (this.#watches.size - 1));
    else {
      worker.isProven = true;
      this.#fleet.setReason(worker, 'version', false);
    }
  }

  #stop(worker: Worker): void {
    const watch = this.#watches.get(worker);
    if (watch?.timer) clearTimeout(watch.timer);
    this.#watches.delete(worker);
  }

  #schedule(worker: Worker, watch: Watch, delayMs: number): void {
    if (!this.#options.isEnabled) return;
    if (watch.timer !== null) clearTimeout(watch.timer);
    watch.timer = setTimeout(() => void this.#look(worker, watch), delayMs);
  }

  async #look(worker: Worker, watch: Watch): Promise<void> {
    watch.timer = null;
    watch.isAsking = true;
    const problem = await this.#check(worker);
    if (problem === null) await this.#passed(worker, watch);
    else this.#failed(worker, watch, problem);
    watch.isAsking = false;
    if (this.#watches.get(worker) !== watch) return;
    // Up to a tenth less, at random: checks that were started together drift apart.
    this.#schedule(worker, watch, this.#intervalOf(worker, watch) * (1 - this.#random() / 10));
  }

  #intervalOf(worker: Worker, watch: Watch): number {
    const { intervalMs, startupIntervalMs } = this.#options;
    if (watch.failures === 0 && worker.reasons === 0) return intervalMs;
    const soon = Math.min(DOUBT_INTERVAL_MS, intervalMs);
    if (worker.isProven) return soon;
    // Engines load for minutes: the longer it takes, the less often it is asked.
    return Math.max(soon, Math.min(startupIntervalMs, (performance.now() - watch.sinceMs) / 10));
  }

  /** @returns null when all is well, else what is wrong. */
  async #check(worker: Worker): Promise<string | null> {
    const asker = this.#asker(worker);
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

  async #passed(worker: Worker, watch: Watch): Promise<void> {
    const asker = this.#asker(worker);
    watch.failures = 0;
    watch.successes++;
    this.#breakers.passedCheck(worker);
    if (worker.engine === null) {
      const facts = await identify(asker);
      worker.engine = facts.kind;
      worker.weightVersion = facts.weightVersion;
      worker.kvTokens = facts.kvTokens;
      this.#onEvent('identified', worker, facts.kind);
    }
    if (watch.isGone) {
      watch.isGone = false;
      if (worker.isProven) this.#onEvent('restarted', worker, 'nobody listened there before');
    }
    const isQuarantined = (worker.reasons & REASONS.unhealthy) !== 0;
    if (isQuarantined && watch.successes < this.#options.successThreshold) return;
    worker.isProven = true;
    const isReturning = watch.isSuspect || worker.reasons !== 0;
    watch.isSuspect = false;
    const hasRightWeights = await this.#hasServingWeights(worker, isReturning);
    if (this.#watches.get(worker) !== watch) return;
    if (isQuarantined && hasRightWeights) {
      this.#breakers.readmitted(worker);
      this.#onEvent('readmitted', worker, `${watch.successes} good checks`);
    }
    this.#fleet.setReason(worker, 'version', !hasRightWeights);
    this.#fleet.setReason(worker, 'unhealthy', false);
  }

  /** Compares with fresh answers of those that serve: a swap may have gone past the router. */
  async #hasServingWeights(worker: Worker, isReturning: boolean): Promise<boolean> {
    const version = await engines[worker.engine!].readWeightVersion(this.#asker(worker));
    worker.weightVersion = version;
    if (!isReturning) return true;
    await Promise.all(
      this.#fleet.eligible
        .filter((other) => other !== worker && other.engine !== null)
        .map(async (other) => {
          other.weightVersion = await engines[other.engine!].readWeightVersion(this.#asker(other));
        }),
    );
    const serving = this.#fleet.servingVersion(worker);
    if (serving === null || version === null || version === serving) {
      worker.heldBackFor = null;
      return true;
    }
    if (worker.heldBackFor !== version) {
      worker.heldBackFor = version;
      this.#onEvent('held_back', worker, `holds weights "${version}", the fleet serves "${serving}"`);
    }
    return false;
  }

  #failed(worker: Worker, watch: Watch, problem: string): void {
    watch.successes = 0;
    watch.failures++;
    watch.isSuspect = true;
    watch.isGone ||= problem === 'ECONNREFUSED';
    const { startupTimeoutMs } = this.#options;
    if (!worker.isProven && !watch.isReported && performance.now() - watch.sinceMs > startupTimeoutMs) {
      watch.isReported = true;
      this.#onEvent('not_started', worker, `no good check in ${startupTimeoutMs / 1000} s: ${problem}`);
    }
    if ((worker.reasons & REASONS.unhealthy) !== 0) return;
    // One that never answered gets no benefit of the doubt: its first failure is enough.
    if (watch.failures < this.#options.failureThreshold && worker.isProven) return;
    this.#fleet.setReason(worker, 'unhealthy', true);
    this.#onEvent('quarantined', worker, problem);
  }

  #asker(worker: Worker): Asker {
    return worker.asker(this.#options.timeoutMs);
  }
}
