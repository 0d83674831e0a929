import type { Hold, SwapGate } from '../choose/policy.ts';
import type { HoldQueue } from '../choose/hold-queue.ts';
import { usable } from '../choose/usable-workers.ts';
import { type Placement, REASONS, type Role, type Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';
import type { PlacedRequest } from '../placed-request.ts';

/**
 * What happens to new requests for a closed engine.
 * - `hold`: they wait until it is open;
 * - `refuse`: they get 425.
 */
export type Closed = 'hold' | 'refuse';

const REASON = 'weight_swap';
const DRAIN_TIMEOUT_HEADER = 'x-fireworks-hot-load-drain-timeout';

export interface GateOptions {
  /** How long a request waits whose client does not say it. */
  readonly waitMs: number;
}

/** Keeps requests from engines whose weights are being replaced. It runs after the policy, so that a swap moves no session. */
export class Gate implements SwapGate {
  /** Requests that were answered with 425. */
  refused = 0;
  isShut = true;
  /** The identity of the worker's weights; null: not known. */
  snapshotOf: (worker: Worker) => string | null = () => null;
  /** A swap runs or is queued, also if no engine is closed. */
  isComing: () => boolean = () => false;
  /** Whether the request must not go to the worker before a swap that is coming. */
  awaits: (x: PlacedRequest, worker: Worker) => boolean = () => false;
  readonly #queue: HoldQueue;
  readonly #options: GateOptions;
  /** By `engineUrl`. */
  readonly #closed = new Map<string, Closed>();

  constructor(queue: HoldQueue, options: GateOptions) {
    this.#queue = queue;
    this.#options = options;
  }

  get isActive(): boolean {
    return this.#closed.size > 0 || this.isComing();
  }

  /** Requests that wait now. */
  get waiting(): number {
    return this.#queue.sizeOf(this);
  }

  close(engineUrl: string, closed: Closed): void {
    this.#closed.set(engineUrl, closed);
    // Those that wait are refused now, if that is what the swap says.
    if (closed === 'refuse') this.changed();
  }

  open(engineUrl: string): void {
    if (this.#closed.delete(engineUrl)) this.changed();
  }

  /** Those that wait are asked again. Also those that wait for another reason: more workers can be chosen for them now. */
  changed(): void {
    if (this.waiting > 0) this.isShut = false;
    this.#queue.retryHeld();
  }

  openOf(x: PlacedRequest, workers: readonly Worker[], home: Worker | null): readonly Worker[] {
    const left = usable(
      x,
      workers.filter((worker) => worker === home || this.#isOpen(x, worker)),
    );
    return left.length > 0 ? left : workers;
  }

  #isOpen(x: PlacedRequest, worker: Worker): boolean {
    return !this.#closed.has(worker.engineUrl) && !this.awaits(x, worker);
  }

  matching(workers: readonly Worker[], to?: Worker): readonly Worker[] {
    const held: Record<Role, Set<string | null>> = { regular: new Set(), prefill: new Set(), decode: new Set() };
    for (const other of to === undefined ? workers : [to]) held[other.role].add(this.snapshotOf(other));
    return workers.filter((worker) => {
      const others = held[worker.role === 'prefill' ? 'decode' : 'prefill'];
      const own = this.snapshotOf(worker);
      return worker === to || others.has(own) || others.has(null) || (own === null && others.size > 0);
    });
  }

  #haveSame(a: Worker, b: Worker): boolean {
    const [of, and] = [this.snapshotOf(a), this.snapshotOf(b)];
    return of === and || of === null || and === null;
  }

  admit(x: PlacedRequest, { legs }: Placement): Hold | RouterError | null {
    // A plugin may have named a worker that no policy gets.
    if (legs.some(({ worker }) => (worker.reasons & (REASONS.version | REASONS.paused)) !== 0)) return this.#refuse();
    const closed = legs.map(({ worker }) => this.#closed.get(worker.engineUrl)).filter((how) => how !== undefined);
    const doMatch = legs.every(({ worker }) => this.#haveSame(worker, legs[0]!.worker));
    const isEarly = legs.some(({ worker }) => this.awaits(x, worker));
    if (closed.length === 0 && doMatch && !isEarly) return null;
    const maxMs = waitOf(x, this.#options);
    if (typeof maxMs !== 'number') return maxMs;
    if (closed.includes('refuse') || maxMs === 0 || x.isOverdueFor(this)) return this.#refuse(doMatch);
    x.placer = this;
    return { hold: REASON, maxMs };
  }

  #refuse(doMatch = true): RouterError {
    this.refused++;
    const why = doMatch
      ? 'The model is hot loading: the weights of the worker are being replaced.'
      : 'No prefill engine has the same weights as a decode engine.';
    return new RouterError('model_not_ready', `${why} Retry with the same session key.`);
  }
}

/** How long the client lets its request wait. */
function waitOf(x: PlacedRequest, { waitMs }: GateOptions): number | RouterError {
  const text = x.header(DRAIN_TIMEOUT_HEADER);
  if (text === undefined) return waitMs;
  const secs = Number(text);
  if (text.trim() !== '' && secs >= 0 && secs <= 86_400) return secs * 1000;
  return new RouterError('bad_request', `${DRAIN_TIMEOUT_HEADER} must be a number of seconds, 0 to 86400.`);
}
