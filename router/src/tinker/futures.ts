import { randomBytes } from 'node:crypto';
import { Tally } from '../kit/tally.ts';
import type { SampleResult } from './sample.ts';

/** As the SDK reads it: whose fault a failed sample is. */
export interface Failed {
  readonly error: string;
  readonly category: 'server' | 'user';
}

/** Ids of the trainer's futures are others. */
export const isOwnFuture = (id: string): boolean => id.startsWith('turnout-');

/** A promise to a client: its id, and later the result. */
export interface Future {
  readonly id: string;
  /** Whose key asked; '' without keys. */
  readonly tenant: string;
  /** What retrieve_futures may ask for it by; '' for nothing. */
  readonly target: string;
  result: SampleResult | Failed | null;
  /** Its place in the order of results; 0: there is none yet. */
  order: number;
  /** When the result came, and when it was first fetched (monotonic ms); 0: not yet. */
  doneMs: number;
  fetchedMs: number;
}

/** Results that were fetched are kept for a client whose connection broke before it had read them. */
const KEPT_FETCHED_MS = 30_000;
const MAX_FETCHED_BYTES = 16_777_216;
/** Results that no client asks for. */
const KEPT_UNFETCHED_MS = 3_600_000;
const MAX_UNFETCHED_BYTES = 268_435_456;
const SWEEP_MS = 5_000;

/**
 * Ids tell which process issued them, and when: `turnout-EPOCH-NUMBER-SECRET`. An id of this process that is not here any more, or of another
 * process, is gone (410); any other was never issued (404).
 */
export class Futures {
  /** A restart need not know it any more. */
  onOver: (id: string) => void = () => {};
  readonly #all = new Map<string, Future>();
  /** Results that were dropped because unfetched ones had too many bytes. */
  dropped = 0;
  /** Called when one was. */
  onDropped: (id: string) => void = () => {};
  /** How many each tenant has that were not fetched yet. */
  readonly #open = new Tally();
  /** In the order of their first fetch. */
  readonly #fetched = new Results(MAX_FETCHED_BYTES);
  /** In the order in which they got their results. */
  readonly #unfetched = new Results(MAX_UNFETCHED_BYTES);
  readonly #byTarget = new Map<string, Set<Future>>();
  /** Callbacks of waiting polls, by the id of a future or by a target. */
  readonly #waiting = new Map<string, Set<() => void>>();
  readonly #epoch = Date.now();
  /** Above all of the processes before, so that a client goes on with the cursor that it has. */
  #order = 1000 * this.#epoch;
  #issued = 0;
  readonly #timer: NodeJS.Timeout;

  constructor() {
    this.#timer = setInterval(() => this.#sweep(performance.now()), SWEEP_MS).unref();
  }

  /** How many were not fetched yet, of all tenants. */
  get size(): number {
    return this.#all.size - this.#fetched.size;
  }

  /** How many of a tenant were not fetched yet. */
  sizeOf(tenant: string): number {
    return this.#open.of(tenant);
  }

  issue(tenant: string, target = ''): Future {
    const id = `turnout-${this.#epoch.toString(36)}-${(this.#issued++).toString(36)}-${randomBytes(9).toString('hex')}`;
    return this.add(id, tenant, target);
  }

  /** One that was issued before a restart. */
  add(id: string, tenant: string, target = ''): Future {
    const future: Future = { id, tenant, target, result: null, order: 0, doneMs: 0, fetchedMs: 0 };
    this.#all.set(id, future);
    this.#open.add(tenant, 1);
    const others = this.#byTarget.get(target);
    if (others !== undefined) others.add(future);
    else if (target !== '') this.#byTarget.set(target, new Set([future]));
    return future;
  }

  /** @returns the future, or the status for a client that asks for another */
  find(id: string, tenant: string, seesAll: boolean): Future | 404 | 410 {
    const future = this.#all.get(id);
    if (future !== undefined) return seesAll || future.tenant === tenant ? future : 404;
    const [, epoch, number = ''] = /^turnout-([\da-z]+)-([\da-z]+)-[\da-f]{18}$/.exec(id) ?? [];
    if (epoch === undefined) return 404;
    // The epoch of an earlier process is larger if the clock was set back since.
    const isOthers = parseInt(epoch, 36) !== this.#epoch;
    return isOthers || parseInt(number, 36) < this.#issued ? 410 : 404;
  }

  settle(future: Future, result: SampleResult | Failed): void {
    if (future.result !== null) return;
    future.result = result;
    future.order = ++this.#order;
    future.doneMs = performance.now();
    this.#unfetched.add(future);
    this.#wake(future.id);
    this.#wake(future.target);
    for (let next = this.#unfetched.tooMany(future); next !== null; next = this.#unfetched.tooMany(future)) {
      this.drop(next);
      this.dropped++;
      this.onDropped(next.id);
    }
  }

  /**
   * Resolves when there is a result, at the latest after `ms`, or when `stop` is called.
   * @param what the id of the future, or the target of futures that may not be issued yet
   */
  wait(what: string, ms: number, onWait: (stop: () => void) => void): Promise<void> {
    const waiting = this.#waiting.get(what) ?? new Set();
    this.#waiting.set(what, waiting);
    return new Promise((resolve) => {
      const stop = (): void => {
        clearTimeout(timer);
        if (waiting.delete(stop) && waiting.size === 0) this.#waiting.delete(what);
        resolve();
      };
      const timer = setTimeout(stop, ms);
      waiting.add(stop);
      onWait(stop);
    });
  }

  #wake(what: string): void {
    for (const wake of this.#waiting.get(what) ?? []) wake();
  }

  /** A place in the order of results that a client has; 0 for one of a process before this one, when the clock was ahead. */
  placeOf(cursor: number): number {
    return cursor > this.#order ? 0 : cursor;
  }

  /** Those of a target whose results came after that place in their order. */
  finishedAfter(target: string, order: number): Future[] {
    return [...(this.#byTarget.get(target) ?? [])].filter((future) => future.order > order);
  }

  /** The client gets the result now. */
  fetched(future: Future): void {
    if (future.fetchedMs > 0 || !this.#all.has(future.id)) return;
    future.fetchedMs = performance.now();
    this.#open.add(future.tenant, -1);
    this.#unfetched.delete(future);
    this.#fetched.add(future);
    this.onOver(future.id);
    for (let next = this.#fetched.tooMany(future); next !== null; next = this.#fetched.tooMany(future)) this.drop(next);
  }

  drop(future: Future): void {
    if (!this.#all.delete(future.id)) return;
    const others = this.#byTarget.get(future.target);
    if (others?.delete(future) === true && others.size === 0) this.#byTarget.delete(future.target);
    this.#fetched.delete(future);
    this.#unfetched.delete(future);
    if (future.fetchedMs === 0) {
      this.#open.add(future.tenant, -1);
      this.onOver(future.id);
    }
    this.#wake(future.id);
  }

  close(): void {
    clearInterval(this.#timer);
    for (const what of this.#waiting.keys()) this.#wake(what);
  }

  #sweep(nowMs: number): void {
    for (const future of this.#all.values()) {
      const { doneMs, fetchedMs } = future;
      const isOver = fetchedMs > 0 ? nowMs - fetchedMs > KEPT_FETCHED_MS : nowMs - doneMs > KEPT_UNFETCHED_MS;
      if (doneMs > 0 && isOver) this.drop(future);
    }
  }
}

/** Futures with results, up to a number of bytes of all tenants together. */
class Results {
  readonly #limitBytes: number;
  readonly #all = new Set<Future>();
  readonly #perTenant = new Tally();
  #bytes = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  get size(): number {
    return this.#all.size;
  }

  add(future: Future): void {
    this.#all.add(future);
    this.#count(future, 1);
  }

  delete(future: Future): void {
    if (this.#all.delete(future)) this.#count(future, -1);
  }

  #count(future: Future, sign: 1 | -1): void {
    const bytes = sign * bytesOf(future);
    this.#bytes += bytes;
    this.#perTenant.add(future.tenant, bytes);
  }

  /**
   * What is to go next: the oldest result of the tenant that has the most bytes, so that one that fetches none drops no results of others.
   * @param newest stays, however large it is @returns null: none
   */
  tooMany(newest: Future): Future | null {
    if (this.#bytes <= this.#limitBytes) return null;
    const largest = this.#perTenant.largest();
    for (const future of this.#all) if (future.tenant === largest) return future === newest ? null : future;
    return null;
  }
}

function bytesOf({ result }: Future): number {
  if (result === null) return 0;
  if ('error' in result) return 256 + 2 * result.error.length;
  const { sequences, promptLogprobs, topPrompt } = result;
  const own = sequences.reduce((sum, { tokens, top }) => sum + 8 * tokens.length + topBytes(top), 0);
  return 512 + own + (promptLogprobs?.byteLength ?? 0) + topBytes(topPrompt);
}

/** A list of a small and a floating point number, in V8 13. */
const PAIR_BYTES = 64;
const topBytes = (rows: SampleResult['topPrompt']): number =>
  (rows ?? []).reduce((sum, row) => sum + 32 + PAIR_BYTES * (row?.length ?? 0), 0);
