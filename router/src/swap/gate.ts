import type { Hold, SwapGate } from '../choose/policy.ts';
import type { HoldQueue } from '../choose/hold-queue.ts';
import { usable } from '../choose/usable-workers.ts';
import type { Fleet } from '../fleet/fleet.ts';
import { type Placement, REASONS, type Role, type Worker } from '../fleet/worker.ts';
import { RouterError } from '../kit/errors.ts';
import type { PlacedRequest, Placer } from '../placed-request.ts';

/**
 * What happens to new requests for a closed engine.
 * - `hold`: they wait until it is open;
 * - `refuse`: they get 425.
 */
export type Closed = 'hold' | 'refuse';

const REASON = 'weight_swap';
/** Requests may wait so long for other engines of a swap after the first one is open: they open some milliseconds or seconds apart. */
const LEAST_MS = 5_000;
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
  readonly #fleet: Pick<Fleet, 'load'>;
  /** Holds requests that have waited for any of several workers, while some of these are still closed: see `shareOf`. */
  readonly #sharing: Placer = { nextHeld: (held, workers) => this.#nextShared(held, workers) };
  /** By `engineUrl`. */
  readonly #closed = new Map<string, Closed>();

  constructor(queue: HoldQueue, options: GateOptions, fleet: Pick<Fleet, 'load'>) {
    this.#queue = queue;
    this.#options = options;
    this.#fleet = fleet;
  }

  get isActive(): boolean {
    return this.#closed.size > 0 || this.isComing();
  }

  /** Requests that wait now. */
  get waiting(): number {
    return this.#queue.sizeOf(this) + this.#queue.sizeOf(this.#sharing);
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
    if (this.#queue.sizeOf(this) > 0) this.isShut = false;
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

  /**
   * The engines of a swap open one after the other, and the first one must not get all requests that have waited: a worker gets them while it has
   * fewer requests than the workers have on average, with those that wait. A request waits for that as long again as it has waited, or 5 s.
   */
  shareOf(
    x: PlacedRequest,
    open: readonly Worker[],
    workers: readonly Worker[],
  ): readonly Worker[] | Hold | RouterError {
    const hasJustWaited = x.placer === this;
    if (!hasJustWaited && x.placer !== this.#sharing) return open;
    const isClosed = (worker: Worker): boolean => !this.#isOpen(x, worker);
    // No worker is open for it, or all are, or it has waited long enough.
    if (open.some(isClosed) || !workers.some(isClosed) || x.isOverdueFor(this.#sharing)) return open;
    if (hasJustWaited) {
      // First all of them are held together: then their number is known.
      this.#queue.retryHeld();
    } else {
      const share = this.#belowAverage(open, workers, this.#queue.sizeLike(x, this.#sharing) + 1);
      const able = x.roles?.length === 2 ? this.matching(share) : usable(x, share);
      if (able.length > 0) return able;
    }
    const waitMs = waitOf(x, this.#options);
    if (typeof waitMs !== 'number') return waitMs;
    x.placer = this.#sharing;
    const waitedMs = x.heldMsBy(this);
    return { hold: REASON, maxMs: Math.min(Math.max(waitedMs, LEAST_MS), waitMs - waitedMs) };
  }

  /** The first one, if a worker may get one of them. Also if all workers are closed again: it waits for the next one to open. */
  #nextShared([first]: Iterable<PlacedRequest>, workers: readonly Worker[]): PlacedRequest | null {
    const open = workers.filter(({ engineUrl }) => !this.#closed.has(engineUrl));
    if (first === undefined || open.length === 0) return first ?? null;
    const waiting = this.#queue.sizeLike(first, this.#sharing);
    return this.#belowAverage(open, workers, waiting).length > 0 ? first : null;
  }

  /** Of each role, the open workers that have fewer requests than the average, if the waiting ones are placed at all workers. */
  #belowAverage(open: readonly Worker[], workers: readonly Worker[], waiting: number): Worker[] {
    const alike = Map.groupBy(workers, ({ role }) => role);
    const averages = new Map<Role, number>();
    for (const [role, all] of alike)
      averages.set(role, all.reduce((sum, worker) => sum + this.#fleet.load(worker), waiting) / all.length);
    return open.filter((worker) => this.#fleet.load(worker) < averages.get(worker.role)!);
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
    return { hold: REASON, maxMs: maxMs - x.heldMsBy(this.#sharing) };
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
