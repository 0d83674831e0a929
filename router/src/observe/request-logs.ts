import type { Exchange } from '../exchange.ts';
import { type ExchangeLogOptions, exchangeLog } from './exchange-log.ts';
import type { Logger } from './log.ts';
import type { Observer } from './observer.ts';
import { RefusalLog } from './refusal-log.ts';
import { WaitWatch } from './wait-watch.ts';

/** Everything that is logged about single requests. */
export class RequestLogs {
  readonly observers: readonly Observer[];
  readonly refusals: RefusalLog;
  readonly #waits: WaitWatch;

  /**
   * @param policyOf the name of the policy that chose for a request
   * @param requests those in flight
   */
  constructor(
    log: Logger,
    options: ExchangeLogOptions,
    policyOf: (x: Exchange) => string,
    requests: () => Iterable<Exchange>,
  ) {
    this.refusals = new RefusalLog(log, options);
    this.#waits = new WaitWatch(log, options, requests);
    this.observers = [this.refusals, exchangeLog(log, options, policyOf)];
  }

  sweep(nowMs: number): void {
    this.refusals.sweep(nowMs);
    this.#waits.sweep(nowMs);
  }

  close(): void {
    this.refusals.close();
  }
}
