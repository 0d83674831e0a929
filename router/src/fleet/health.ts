import { setTimeout as delay } from 'node:timers/promises';
import { HealthWatch, type HealthWatchParts } from './health-watch.ts';
import type { Worker } from './worker.ts';

/** The first checks of new workers are this many milliseconds apart, so that 500 at once do not coincide. */
const SPREAD_MS = 4;

/** Checks every engine of a fleet, spread over the interval so that a large fleet is not probed at once. */
export class Health {
  readonly #parts: HealthWatchParts;
  /** Of the members of the fleet, by `engineUrl`. */
  readonly #watches = new Map<string, HealthWatch>();
  /** Of removed workers with requests in flight: another engine may be added at the same URL. */
  readonly #last = new Map<Worker, HealthWatch>();
  /**
   * The first checks of the engines that are asked for their ranks and were there before any of them had answered; null: they have ended. Requests
   * wait for them, because sessions of an earlier process of the router have their homes at ranks that are not known before, and would be placed
   * elsewhere for good.
   */
  firstChecks: Promise<void> | null = null;
  /** The first check of an engine has ended. */
  #hasChecked = false;

  constructor(parts: HealthWatchParts) {
    this.#parts = parts;
    parts.fleet.onEvent((event, worker) => {
      if (event === 'added') this.#start(worker);
      else if (event === 'removed') this.#leave(worker);
      else if (event === 'drained') this.#stop(worker);
    });
  }

  /** A request could not reach this worker: checks it at once. */
  suspect(worker: Worker): void {
    (this.#last.get(worker) ?? this.#watches.get(worker.engineUrl))?.suspect();
  }

  /** The worker's engine was paused and generates now: checks that it failed before it ever passed one say nothing. */
  resumed(worker: Worker): void {
    if (!worker.isProven) this.#watches.get(worker.engineUrl)?.resumed();
  }

  /** Takes the engine of this worker out until it has passed its checks again. @returns false: there are no checks */
  quarantine(worker: Worker): boolean {
    const { isEnabled } = this.#parts.options;
    if (isEnabled) this.#watches.get(worker.engineUrl)?.quarantine();
    return isEnabled;
  }

  close(): void {
    for (const watch of [...this.#watches.values(), ...this.#last.values()]) watch.end();
    this.#watches.clear();
    this.#last.clear();
  }

  #start(worker: Worker): void {
    const { fleet, options, random } = this.#parts;
    if (!options.isEnabled) {
      worker.isProven = true;
      fleet.setReason(worker, 'version', false);
    }
    let watch = this.#watches.get(worker.engineUrl);
    const isNew = watch === undefined;
    if (watch === undefined) this.#watches.set(worker.engineUrl, (watch = new HealthWatch(this.#parts)));
    watch.add(worker);
    if (!isNew) return;
    const delayMs = random() * SPREAD_MS * (this.#watches.size - 1);
    watch.checkIn(delayMs);
    if (worker.given.asksForRanks && !this.#hasChecked) this.#awaitFirst(watch, delayMs + options.timeoutMs);
  }

  #awaitFirst({ firstCheck }: HealthWatch, maxMs: number): void {
    void firstCheck.then(() => (this.#hasChecked = true));
    const inTime = Promise.race([firstCheck, delay(maxMs, undefined, { ref: false })]);
    const all = Promise.all([this.firstChecks, inTime]).then(() => {
      if (this.firstChecks === all) this.firstChecks = null;
    });
    this.firstChecks = all;
  }

  #leave(worker: Worker): void {
    const watch = this.#watches.get(worker.engineUrl);
    if (watch === undefined) return;
    if (watch.leave(worker)) this.#watches.delete(worker.engineUrl);
    this.#last.set(worker, watch);
  }

  #stop(worker: Worker): void {
    this.#last.get(worker)?.remove(worker);
    this.#last.delete(worker);
  }
}
