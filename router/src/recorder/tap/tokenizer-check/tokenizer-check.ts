import { setTimeout as wait } from 'node:timers/promises';
import type { Fleet } from '../../../fleet/fleet.ts';
import { REASONS, type Worker } from '../../../fleet/worker.ts';
import { RouterError } from '../../../kit/errors.ts';
import type { Logger } from '../../../observe/log.ts';
import { Refused } from '../../../plugin.ts';
import { type Verdict, differenceIn, probe } from './probe.ts';

/** An engine that can't be asked yet is asked again, at first soon, later less often. */
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;

/** Compares the tokenizer with that of each engine: once when the engine joins, and again after it was unhealthy. */
export class TokenizerCheck {
  readonly #encode: (text: string) => Promise<number[]>;
  readonly #log: Logger;
  readonly #verdicts = new WeakMap<Worker, Promise<Verdict>>();
  /** Workers that are asked until they answer. */
  readonly #followed = new Set<Worker>();
  /** Workers of these that could not be compared when they were asked: requests do not wait for the comparison again. */
  readonly #silent = new WeakSet<Worker>();
  readonly #over = new AbortController();

  constructor(encode: (text: string) => Promise<number[]>, log: Logger) {
    this.#encode = encode;
    this.#log = log;
  }

  /** Compares all present and future workers in the background, so that a mismatch is known before a request. */
  watch(fleet: Fleet): void {
    for (const worker of fleet.workers) void this.#follow(fleet, worker);
    const unsubscribe = fleet.onEvent((event, worker) => {
      const isAway = event === 'changed' && (worker.reasons & REASONS.unhealthy) !== 0;
      // Another engine may have started at this address.
      if (isAway) this.#verdicts.delete(worker);
      this.#silent.delete(worker);
      if (isAway || event === 'added') void this.#follow(fleet, worker);
    });
    this.#over.signal.addEventListener('abort', unsubscribe);
  }

  close(): void {
    this.#over.abort();
  }

  /** Throws `Refused` for an engine with another tokenizer. */
  async check(worker: Worker): Promise<void> {
    if (this.#silent.has(worker) && this.#followed.has(worker)) return;
    const verdict = await this.#verdictOf(worker);
    if (verdict.kind !== 'differs') return;
    throw new Refused(new RouterError('tokenizer_mismatch', differenceIn(verdict, worker)));
  }

  async #follow(fleet: Fleet, worker: Worker): Promise<void> {
    if (this.#followed.has(worker)) return;
    this.#followed.add(worker);
    try {
      for (let waitMs = FIRST_WAIT_MS; fleet.has(worker); waitMs = Math.min(2 * waitMs, LONGEST_WAIT_MS)) {
        const { kind } = await this.#verdictOf(worker);
        if (kind !== 'later' && this.#verdicts.has(worker)) return;
        await wait(waitMs, undefined, { ref: false, signal: this.#over.signal });
      }
    } catch {
      // The router stops, or its tokenizer is gone: the check before a request says so.
    } finally {
      this.#followed.delete(worker);
    }
  }

  async #verdictOf(worker: Worker): Promise<Verdict> {
    const known = this.#verdicts.get(worker);
    if (known !== undefined) return known;
    const asked = probe(worker, this.#encode);
    this.#verdicts.set(worker, asked);
    try {
      const verdict = await asked;
      // It was away in the meantime, and is asked again.
      if (this.#verdicts.get(worker) === asked) this.#learn(worker, verdict);
      return verdict;
    } catch (error) {
      this.#verdicts.delete(worker);
      throw error;
    }
  }

  #learn(worker: Worker, verdict: Verdict): void {
    worker.tokenizerMismatch = verdict.kind === 'differs' ? differenceIn(verdict, worker) : null;
    if (verdict.kind === 'differs') this.#log.error({ worker: worker.url }, differenceIn(verdict, worker));
    if (verdict.kind === 'unknown') {
      this.#log.warn(
        { worker: worker.url, reason: verdict.reason },
        'the tokenizer of the engine could not be compared with --tokenizer-path',
      );
    }
    if (verdict.kind === 'later') this.#verdicts.delete(worker);
    if (verdict.kind === 'later' && verdict.isSilent) this.#silent.add(worker);
    else this.#silent.delete(worker);
  }
}
