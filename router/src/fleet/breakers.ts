import { Breaker, type BreakerOptions, type BreakerState, type FailureKind } from './breaker.ts';
import type { Fleet } from './fleet.ts';
import { REASONS, type Worker } from './worker.ts';

export interface BreakersOptions extends BreakerOptions {
  readonly isEnabled: boolean;
  /** The largest part of the fleet, 0 to 100, that may be ejected at once; below 100 never the last worker. */
  readonly maxEjectedPercent: number;
}

/** What a user forces; `auto` means the breaker decides. */
export type ForcedState = 'open' | 'closed' | 'auto';

export type BreakerEvent = 'opened' | 'half_open' | 'closed' | 'panic';

interface Circuit {
  readonly breaker: Breaker;
  forced: ForcedState;
  timer: NodeJS.Timeout | null;
}

/**
 * The circuit breakers of all workers: they eject workers whose requests fail (reason `breaker`) and readmit them.
 *
 * Beyond `maxEjectedPercent` a failing worker is not ejected (panic mode), because a fleet that answers some requests
 * is better than one that answers none.
 */
export class Breakers {
  /** How often a worker was not ejected because too many others were. */
  panics = 0;
  readonly #options: BreakersOptions;
  readonly #fleet: Fleet;
  readonly #nowMs: () => number;
  readonly #onEvent: (event: BreakerEvent, worker: Worker) => void;
  readonly #circuits = new Map<Worker, Circuit>();

  constructor(
    fleet: Fleet,
    options: BreakersOptions,
    nowMs: () => number,
    onEvent: (event: BreakerEvent, worker: Worker) => void,
  ) {
    this.#fleet = fleet;
    this.#options = options;
    this.#nowMs = nowMs;
    this.#onEvent = onEvent;
    fleet.onEvent((event, worker) => {
      if (event === 'added') this.#forceAsOtherRanks(worker);
      else if (event === 'removed') this.#forget(worker);
    });
  }

  stateOf(worker: Worker): BreakerState {
    return this.#circuits.get(worker)?.breaker.state ?? 'closed';
  }

  /** Milliseconds until the first open breaker becomes half-open; 0 if none is open. */
  get nextTrialMs(): number {
    const waits = Array.from(this.#circuits.values(), ({ breaker }) => breaker.openForMs(this.#nowMs()));
    const open = waits.filter((ms) => ms > 0);
    return open.length === 0 ? 0 : Math.min(...open);
  }

  failed(worker: Worker, kind: FailureKind): void {
    if (!this.#options.isEnabled || !this.#fleet.has(worker)) return;
    const circuit = this.#circuitOf(worker);
    if (!circuit.breaker.failed(kind, this.#nowMs()) || circuit.forced === 'closed') return;
    if (this.#mayEject(worker)) this.#open(worker, circuit);
    else {
      this.panics++;
      if (circuit.breaker.state === 'half_open') this.#close(worker, circuit);
      this.#onEvent('panic', worker);
    }
  }

  succeeded(worker: Worker, isGeneration: boolean): void {
    // Most workers never failed and have no circuit.
    const circuit = this.#circuits.get(worker);
    if (circuit !== undefined && circuit.breaker.succeeded(isGeneration)) this.#close(worker, circuit);
  }

  passedCheck(worker: Worker): void {
    const circuit = this.#circuits.get(worker);
    if (circuit?.forced === 'auto' && circuit.breaker.passedCheck()) this.#close(worker, circuit);
  }

  /** The options have changed. Without breakers nothing is ejected or on trial, except what a user forced. */
  onOptionsChange(): void {
    if (this.#options.isEnabled) return;
    for (const [worker, circuit] of this.#circuits) {
      if (circuit.forced === 'auto' && circuit.breaker.state !== 'closed') this.#close(worker, circuit);
    }
  }

  /** The worker passed its health checks again, perhaps as a new process, so trial requests are allowed at once. */
  readmitted(worker: Worker): void {
    const circuit = this.#circuits.get(worker);
    if (circuit?.breaker.state === 'open') this.#try(worker, circuit);
  }

  /** The one exchange of a half-open worker has ended: the next may come (see `Fleet.begin`). */
  trialEnded(worker: Worker): void {
    const circuit = this.#circuits.get(worker);
    if (circuit?.breaker.state === 'half_open' && circuit.forced !== 'open') {
      this.#fleet.setReason(worker, 'breaker', false);
    }
  }

  /** A forced state holds until the user sets `auto`. */
  force(worker: Worker, forced: ForcedState): void {
    const circuit = this.#circuitOf(worker);
    circuit.forced = forced;
    if (forced === 'open') this.#open(worker, circuit);
    // It forgets the failures that it has counted.
    else if (circuit.breaker.state === 'closed') circuit.breaker.close();
    else this.#close(worker, circuit);
  }

  close(): void {
    for (const circuit of this.#circuits.values()) this.#stopTimer(circuit);
  }

  /** An engine that is asked for its ranks may have more of them after a restart: what a user forced for all of them holds. */
  #forceAsOtherRanks(worker: Worker): void {
    if (!worker.given.asksForRanks) return;
    const others = this.#fleet.workers.filter((each) => each !== worker && each.engineUrl === worker.engineUrl);
    const states = new Set(others.map((each) => this.#circuits.get(each)?.forced ?? 'auto'));
    const [forced = 'auto'] = states;
    if (states.size === 1 && forced !== 'auto') this.force(worker, forced);
  }

  #circuitOf(worker: Worker): Circuit {
    let circuit = this.#circuits.get(worker);
    if (circuit === undefined) {
      circuit = { breaker: new Breaker(this.#options), forced: 'auto', timer: null };
      this.#circuits.set(worker, circuit);
    }
    return circuit;
  }

  #mayEject(worker: Worker): boolean {
    const { maxEjectedPercent } = this.#options;
    const workers = this.#fleet.workers.filter((other) => canReplace(other, worker));
    const eligible = this.#fleet.eligible.filter((other) => canReplace(other, worker));
    if (maxEjectedPercent >= 100) return true;
    if (!eligible.some((other) => other !== worker)) return false;
    const ejected = workers.filter((other) => other !== worker && this.stateOf(other) !== 'closed').length;
    return ejected < Math.max(1, Math.floor((workers.length * maxEjectedPercent) / 100));
  }

  #open(worker: Worker, circuit: Circuit): void {
    const wasOpen = circuit.breaker.state === 'open';
    circuit.breaker.open(this.#nowMs());
    worker.isOnTrial = false;
    this.#stopTimer(circuit);
    if (circuit.forced !== 'open') circuit.timer = setTimeout(() => this.#try(worker, circuit), this.#options.openMs);
    if (!wasOpen) this.#onEvent('opened', worker);
    this.#fleet.setReason(worker, 'breaker', true);
  }

  #try(worker: Worker, circuit: Circuit): void {
    if (circuit.forced === 'open') return;
    this.#stopTimer(circuit);
    circuit.breaker.halfOpen();
    worker.isOnTrial = true;
    this.#onEvent('half_open', worker);
    this.#fleet.setReason(worker, 'breaker', false);
  }

  #close(worker: Worker, circuit: Circuit): void {
    this.#stopTimer(circuit);
    circuit.breaker.close();
    worker.isOnTrial = false;
    this.#onEvent('closed', worker);
    if ((worker.reasons & REASONS.breaker) !== 0) this.#fleet.setReason(worker, 'breaker', false);
  }

  #stopTimer(circuit: Circuit): void {
    if (circuit.timer !== null) clearTimeout(circuit.timer);
    circuit.timer = null;
  }

  #forget(worker: Worker): void {
    const circuit = this.#circuits.get(worker);
    if (circuit !== undefined) this.#stopTimer(circuit);
    this.#circuits.delete(worker);
  }
}

/** The halves of pairs cannot replace each other, nor can workers without a common model. */
const canReplace = (one: Worker, other: Worker): boolean => one.role === other.role && one.mayShareModel(other);
