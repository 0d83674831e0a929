import type { Worker } from '../../fleet/worker.ts';
import { RouterError } from '../../kit/errors.ts';
import type { Logger } from '../../observe/log.ts';
import { Refused } from '../../plugin.ts';
import { type Verdict, differenceIn, probe } from './probe.ts';

/** Whether engines read texts as the router does: each is asked once. */
export class SameTokens {
  readonly #encode: (text: string) => Promise<number[]>;
  readonly #log: Logger;
  readonly #verdicts = new WeakMap<Worker, Promise<Verdict>>();

  constructor(encode: (text: string) => Promise<number[]>, log: Logger) {
    this.#encode = encode;
    this.#log = log;
  }

  /** Throws `Refused` for an engine that reads texts in another way. */
  async check(worker: Worker): Promise<void> {
    let asked = this.#verdicts.get(worker);
    if (asked === undefined) {
      asked = probe(worker, this.#encode);
      this.#verdicts.set(worker, asked);
      const verdict = await asked;
      if (verdict.kind === 'differs') this.#log.error({ worker: worker.url }, differenceIn(verdict, worker));
      if (verdict.kind === 'unknown') {
        this.#log.warn({ worker: worker.url, reason: verdict.reason }, 'its tokenizer could not be compared with ours');
      }
      if (verdict.kind === 'later') this.#verdicts.delete(worker);
    }
    const verdict = await asked;
    if (verdict.kind !== 'differs') return;
    throw new Refused(new RouterError('tokenizer_mismatch', differenceIn(verdict, worker)));
  }
}
