import { sessionOf } from '../classify/routing-keys.ts';
import type { Exchange } from '../exchange.ts';
import { REASONS } from '../fleet/worker.ts';
import type { Logger } from './log.ts';

/** A warning is logged for requests that are queued or held for longer, and for silent streams at unhealthy workers. */
const LONG_MS = 30_000;
/** The interval between warnings. */
const REPEAT_MS = 30_000;

/** The requests that wait for one cause: their number and the oldest. */
class Waiters {
  count = 0;
  #oldest: Exchange | null = null;
  #oldestMs = 0;
  readonly #whyOf: (x: Exchange) => object;

  constructor(whyOf: (x: Exchange) => object) {
    this.#whyOf = whyOf;
  }

  add(x: Exchange, waitedMs: number): void {
    this.count++;
    if (this.#oldest !== null && waitedMs <= this.#oldestMs) return;
    this.#oldest = x;
    this.#oldestMs = waitedMs;
  }

  /** As fields of a log line. */
  describe(sessionHeaders: readonly string[]): object {
    const x = this.#oldest!;
    const session = sessionOf(x, sessionHeaders);
    return {
      count: this.count,
      oldestSecs: Math.round(this.#oldestMs / 1000),
      requestId: x.head.requestId,
      ...(session === '' ? {} : { session }),
      ...this.#whyOf(x),
    };
  }
}

/** Logs a warning while requests are held for long, or wait at an unhealthy worker. */
export class WaitWatch {
  readonly #log: Logger;
  readonly #options: { readonly sessionHeaders: readonly string[] };
  readonly #requests: () => Iterable<Exchange>;
  #saidMs = -Infinity;

  constructor(
    log: Logger,
    options: { readonly sessionHeaders: readonly string[] },
    requests: () => Iterable<Exchange>,
  ) {
    this.#log = log;
    this.#options = options;
    this.#requests = requests;
  }

  sweep(nowMs: number): void {
    if (nowMs - this.#saidMs < REPEAT_MS) return;
    const held = new Waiters(({ waiting }) => ({ reason: waiting!.reason }));
    const stuck = new Waiters((x) => ({ worker: x.worker!.url }));
    for (const x of this.#requests()) {
      const { waiting, worker } = x;
      if (waiting !== null) {
        const waitedMs = nowMs - waiting.sinceMs;
        if (waitedMs > LONG_MS) held.add(x, waitedMs);
      } else if (x.isCounted && worker !== null && (worker.reasons & (REASONS.unhealthy | REASONS.hung)) !== 0) {
        // A stream counts only if it is silent.
        const silentMs = nowMs - (x.firstByteMs === 0 ? x.startMs : x.lastByteMs);
        if (x.firstByteMs === 0 || silentMs > LONG_MS) stuck.add(x, silentMs);
      }
    }
    if (held.count === 0 && stuck.count === 0) return;
    this.#saidMs = nowMs;
    const { sessionHeaders } = this.#options;
    const fields = {
      ...(held.count === 0 ? {} : { held: held.describe(sessionHeaders) }),
      ...(stuck.count === 0 ? {} : { atUnhealthyWorkers: stuck.describe(sessionHeaders) }),
    };
    const parts = [
      ...(held.count === 0 ? [] : [`${held.count} held for more than ${LONG_MS / 1000} s`]),
      ...(stuck.count === 0 ? [] : [`${stuck.count} waiting at unhealthy workers`]),
    ];
    this.#log.warn(fields, `requests wait: ${parts.join(', ')}`);
  }
}
