import type { Seam } from '../../exchange.ts';
import type { ExchangeView as Exchange } from '../../phases/exchange-view.ts';
import type { Label } from '../../fleet/engine-label.ts';
import type { VersionLabels } from '../../fleet/version-labels.ts';
import type { Worker } from '../../fleet/worker.ts';
import type { RecorderThread } from './recorder-thread.ts';
import type { AskedVersion, WeightChange } from '../thread/version-spans.ts';
import type { AnswerTap } from './answer-tap.ts';

/** How long reads of the record wait for version answers of engines. */
const PATIENCE_MS = 1_000;

/** What was known of the weights of those that work for an exchange before they got it. */
export interface Bracket {
  readonly workers: readonly Worker[];
  readonly before: readonly (Label | null)[];
  /** Identifies the version answer that follows after the turn; 0: none follows. */
  ticket: number;
  /** Where other engines sampled before (`--resume`). */
  readonly seams: readonly Seam[];
  /** By the router's own weight swaps, since the engine got the request. */
  readonly changes: WeightChange[];
}

/** Which snapshot each engine has, where the router swaps weights. */
export interface EngineSnapshots {
  of(worker: Worker): string | null;
  /** The listener is called between the load of new weights and the engine's next token. */
  onChange(listener: (worker: Worker, snapshot: string | null) => void): void;
}

const NOTHING_KNOWN: AskedVersion = { before: '', isProof: false, stale: '', ticket: 0, changes: [] };

/**
 * Versions of weights that engines don't name in their answers: the engine is asked before it gets a request and after it has answered.
 * The same name both times is the version of all that it sampled in between, if that name is a proof (`Label`). Only an
 * answer that was here before the request left counts as one from before, and only a question that was asked after the last byte
 * of the answer counts as one from after.
 */
export class VersionBrackets {
  readonly #labels: VersionLabels;
  readonly #thread: RecorderThread;
  readonly #open = new Set<Promise<void>>();
  readonly #snapshots: EngineSnapshots | null;
  /** Responses in flight, by what was known of their engines' weights. */
  readonly #taps = new Map<Bracket, AnswerTap>();
  #tickets = 0;

  /** @param snapshots null: the router swaps no weights */
  constructor(labels: VersionLabels, thread: RecorderThread, snapshots: EngineSnapshots | null) {
    this.#labels = labels;
    this.#thread = thread;
    this.#snapshots = snapshots;
    snapshots?.onChange((worker) => this.#changed(worker));
  }

  /**
   * To be called right before a request goes to its worker; delays nothing.
   * @param isWatched its engine may not name versions in this answer, so it is asked from now on
   * @param earlier of an attempt before this one, whose response this one may continue
   */
  begin(x: Exchange, worker: Worker, isWatched: boolean, earlier: Bracket | null): Bracket {
    // Of a pair, both sample.
    const workers = x.placement?.legs.map((leg) => leg.worker) ?? [worker];
    const before = workers.map((each) => this.#labels.of(each).newest);
    if (isWatched) for (const each of workers) this.#labels.watch(each);
    const changes = this.#snapshots === null ? [] : [{ at: 0, version: this.#of(workers) }];
    const bracket = { workers, before, ticket: 0, changes, seams: x.seams };
    const tap = earlier === null ? undefined : this.#taps.get(earlier);
    if (tap !== undefined) {
      this.left(earlier);
      this.follow(bracket, tap);
    }
    return bracket;
  }

  /** The response begins. Until `left`, changes of the weights are noted with their places in it. */
  follow(bracket: Bracket | null, tap: AnswerTap): void {
    if (bracket === null || bracket.changes.length === 0) return;
    this.#note(bracket, 0);
    this.#taps.set(bracket, tap);
  }

  left(bracket: Bracket | null): void {
    if (bracket !== null) this.#taps.delete(bracket);
  }

  #changed({ engineUrl }: Worker): void {
    for (const [bracket, tap] of this.#taps) {
      if (bracket.workers.some((worker) => worker.engineUrl === engineUrl)) this.#note(bracket, tap.end);
    }
  }

  #note({ workers, changes }: Bracket, at: number): void {
    const version = this.#of(workers);
    if (version !== changes.at(-1)!.version) changes.push({ at, version });
  }

  /** null: not known, or not the same at all of them. */
  #of(workers: readonly Worker[]): string | null {
    const version = this.#snapshots!.of(workers[0]!);
    return workers.every((worker) => this.#snapshots!.of(worker) === version) ? version : null;
  }

  /**
   * The version facts that are handed over with an answer, or with a part of one.
   * @param isUnnamed its engine may not have named versions in it: it will be asked when the exchange is over
   */
  asked(bracket: Bracket | null, isUnnamed: boolean): AskedVersion {
    if (bracket === null) return NOTHING_KNOWN;
    const { workers, before, seams } = bracket;
    if (isUnnamed && bracket.ticket === 0) bracket.ticket = ++this.#tickets;
    const isUnbroken = before.every((label, i) => label?.updates === this.#labels.of(workers[i]!).updates);
    return {
      before: commonName(before),
      isProof: isUnbroken && before.every((label) => label?.isProof === true),
      stale: workers.map((worker) => this.#labels.of(worker).stale).find((name) => name !== null) ?? '',
      ticket: bracket.ticket,
      changes: [...bracket.changes],
      ...(seams.length === 0 ? {} : { seams }),
    };
  }

  /**
   * The exchange is over: asks where that was promised.
   * @param recorded settles when the turns of the answer are handed over to the thread, or can't be
   */
  complete(x: Exchange, bracket: Bracket | null, recorded: Promise<unknown> = Promise.resolve()): void {
    this.left(bracket);
    if (bracket === null || bracket.ticket === 0) return;
    // After an engine has died, another process may answer.
    const asked = x.outcome === 'cut' ? [] : bracket.workers.map((worker) => this.#labels.of(worker).ask());
    const done = this.#complete(bracket, Promise.all(asked), recorded).finally(() => this.#open.delete(done));
    this.#open.add(done);
  }

  /** Resolves when what engines were asked for answers that have ended is on record, or they take too long; null: it is. */
  settled(): Promise<unknown> | null {
    if (this.#open.size === 0) return null;
    this.#labels.hurry();
    let timer: NodeJS.Timeout | undefined;
    const patience = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, PATIENCE_MS);
    });
    return Promise.race([Promise.all(this.#open), patience]).finally(() => clearTimeout(timer));
  }

  async #complete(
    { before, ticket }: Bracket,
    asked: Promise<readonly Label[]>,
    recorded: Promise<unknown>,
  ): Promise<void> {
    const labels = await asked;
    await recorded.catch(() => {});
    const name = commonName(labels);
    const isProof = before.every((label, i) => {
      const after = labels[i];
      return label?.isProof === true && after?.isProof === true && after.updates === label.updates;
    });
    const version = isProof && name !== '' && name === commonName(before) ? name : null;
    this.#thread.tell('versionLearned', { ticket, version, after: name });
  }
}

/** '' where they have none in common. */
function commonName(labels: readonly (Label | null)[]): string {
  const name = labels[0]?.name ?? '';
  return labels.every((label) => label?.name === name) ? name : '';
}
