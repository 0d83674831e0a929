import type { Asker } from '../engines/ask.ts';
import { engines, identify } from '../engines/engines.ts';
import type { Random } from '../kit/rng.ts';
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
  readonly isEnabled: boolean;
}

/** While a worker's state is in doubt it is looked at this often (at most the interval): news should travel fast. */
const DOUBT_INTERVAL_MS = 1_000;

export type HealthEvent = 'quarantined' | 'readmitted' | 'held_back';

interface Watch {
  failures: number;
  successes: number;
  timer: NodeJS.Timeout | null;
  isAsking: boolean;
  /** It failed a check or a request since its last good check: it may be another process now. */
  isSuspect: boolean;
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
  readonly #onEvent: (event: HealthEvent, worker: Worker, detail: string) => void;
  readonly #watches = new Map<Worker, Watch>();

  constructor(
    fleet: Fleet,
    options: HealthOptions,
    random: Random,
    onEvent: (event: HealthEvent, worker: Worker, detail: string) => void,
  ) {
    this.#fleet = fleet;
    this.#options = options;
    this.#random = random;
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

  close(): void {
    for (const worker of this.#watches.keys()) this.#stop(worker);
  }

  #start(worker: Worker): void {
    const watch: Watch = { failures: 0, successes: 0, timer: null, isAsking: false, isSuspect: false };
    this.#watches.set(worker, watch);
    if (this.#options.isEnabled) this.#schedule(worker, watch, 0);
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
    const { intervalMs } = this.#options;
    const isInDoubt = watch.failures > 0 || worker.reasons !== 0;
    // Up to a tenth less, at random: checks that were started together drift apart.
    const wait = (isInDoubt ? Math.min(DOUBT_INTERVAL_MS, intervalMs) : intervalMs) * (1 - this.#random() / 10);
    this.#schedule(worker, watch, wait);
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
    if (worker.engine === null) {
      const facts = await identify(asker);
      worker.engine = facts.kind;
      worker.weightVersion = facts.weightVersion;
      worker.kvTokens = facts.kvTokens;
    }
    const isQuarantined = (worker.reasons & REASONS.unhealthy) !== 0;
    if (isQuarantined && watch.successes < this.#options.successThreshold) return;
    worker.isProven = true;
    const isReturning = watch.isSuspect || worker.reasons !== 0;
    watch.isSuspect = false;
    const hasRightWeights = await this.#hasServingWeights(worker, isReturning);
    if (this.#watches.get(worker) !== watch) return;
    if (isQuarantined && hasRightWeights) this.#onEvent('readmitted', worker, `${watch.successes} good checks`);
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
