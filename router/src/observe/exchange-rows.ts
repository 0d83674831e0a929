import type { Exchange } from '../exchange.ts';
import { type ExchangeRow, exchangeRow } from './exchange-row.ts';
import type { Observer } from './observer.ts';

/** Gets the row of each exchange that ends while `isOn`. */
export interface RowListener {
  readonly isOn: boolean;
  take(row: ExchangeRow): void;
}

/** Makes one row of each finished exchange for all that show it, and none if nothing listens. */
export class ExchangeRows implements Observer {
  readonly #listeners: RowListener[] = [];
  readonly #options: { readonly sessionHeaders: readonly string[] };
  readonly #policyOf: (x: Exchange) => string;

  /** @param policyOf the name of the policy that chose for a request */
  constructor(options: { readonly sessionHeaders: readonly string[] }, policyOf: (x: Exchange) => string) {
    this.#options = options;
    this.#policyOf = policyOf;
  }

  /** @returns stops it */
  listen(listener: RowListener): () => void {
    this.#listeners.push(listener);
    return () => {
      const at = this.#listeners.indexOf(listener);
      if (at >= 0) this.#listeners.splice(at, 1);
    };
  }

  finished(x: Exchange): void {
    let row: ExchangeRow | null = null;
    for (const listener of this.#listeners) {
      if (!listener.isOn) continue;
      row ??= exchangeRow(x, this.#options.sessionHeaders, this.#policyOf(x));
      listener.take(row);
    }
  }
}
