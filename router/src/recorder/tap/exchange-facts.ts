import { groupOf, sessionOf } from '../../classify/routing-keys.ts';
import type { ExchangeView as Exchange } from '../../phases/exchange-view.ts';
import type { Logger } from '../../observe/log.ts';
import { timesOf } from '../shared/turn.ts';

/** The facts of an exchange for its turns. */
export const factsOf = (x: Exchange, isStream: boolean, sessionHeaders: readonly string[]) => ({
  session: sessionOf(x, sessionHeaders),
  group: groupOf(x),
  tenant: x.tenant,
  model: x.model,
  worker: x.worker?.url ?? '',
  path: x.path,
  ...timesOf(x, isStream),
});

/** Logs why exchanges are not captured: the 1st, 2nd, 4th, 8th … failure, because each one would flood the log. */
export class UncapturedLog {
  readonly #log: Logger;
  readonly #text: string;
  #count = 0;

  constructor(log: Logger, text: string) {
    this.#log = log;
    this.#text = text;
  }

  add(problem: string | null, worker: string): void {
    if (problem === null) return;
    const count = ++this.#count;
    if ((count & (count - 1)) === 0) this.#log.warn({ problem, worker, count }, this.#text);
  }
}
