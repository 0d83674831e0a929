import type { Exchange, Seam } from '../exchange.ts';
import { cameWithin } from '../kit/came-within.ts';
import type { ExchangeView } from '../phases/exchange-view.ts';
import type { Label } from './engine-label.ts';
import type { EngineWeights, LoadStage, WeightSource } from './engine-weights.ts';
import type { VersionLabels } from './version-labels.ts';
import type { Worker } from '../fleet/worker.ts';
import type { AskedVersion, BesideAnswer, LearnedVersion, WeightChange } from './version-spans.ts';

/** How long reads of the record wait for version answers of engines. */
const PATIENCE_MS = 1_000;

/** What was known of the weights of those that work for an exchange before they got it. */
export interface Bracket {
  readonly x: Exchange;
  readonly workers: readonly Worker[];
  readonly before: readonly (Label | null)[];
  /** A name that one of them had kept over an update by then; null: none. */
  readonly stale: string | null;
  /** Identifies the version answer that follows after the turn; null: none follows. */
  ticket: number | null;
  /** Where other engines sampled before (`--resume`), and what is known of their weights. */
  readonly seams: readonly Seam[];
  readonly earlier: readonly BesideAnswer[];
  /** By the router's own weight swaps, since the engine got the request. Empty: it does not replace these weights. */
  readonly changes: WeightChange[];
  /** `EngineWeights.breaks` of each, then. */
  readonly breaks: readonly number[];
  /** Where the response was when the engine had loaded weights; null: not all of what it had made was read by then. */
  loadedAt: number | null;
}

/** A response that is read. */
interface Tap {
  /** Where in all that was or will be taken of it the response is now. */
  readonly end: number;
  /** Called once, when more of the response comes. */
  onMore: (() => void) | null;
}

/** A response in flight. */
interface Followed {
  readonly bracket: Bracket;
  readonly tap: Tap;
}

const NOTHING_KNOWN: AskedVersion = { before: null, isProof: false, stale: null, ticket: null, changes: [] };

/**
 * Versions of weights that engines don't name in their answers: the engine is asked before it gets a request and after it has answered.
 * The same name both times is the version of all that it sampled in between, if that name is a proof (`Label`). Only an
 * answer that was here before the request left counts as one from before, and only a question that was asked after the last byte
 * of the answer counts as one from after.
 */
export class VersionBrackets {
  readonly #labels: VersionLabels;
  readonly #onLearned: (learned: LearnedVersion) => void;
  readonly #open = new Set<Promise<void>>();
  readonly #source: WeightSource | null;
  /** Responses in flight, by what was known of their engines' weights. */
  readonly #taps = new Map<Bracket, Tap>();
  #tickets = 0;

  /** @param source null: the router swaps no weights */
  constructor(labels: VersionLabels, source: WeightSource | null, onLearned: (learned: LearnedVersion) => void) {
    this.#labels = labels;
    this.#onLearned = onLearned;
    this.#source = source;
    source?.onChange((worker) => this.#changed(worker));
    source?.onLoad((worker, stage) => this.#loads(worker, stage));
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
    const now = this.#of(workers);
    const { seams } = x;
    const known = earlier === null ? [] : [...earlier.earlier, this.#beside(earlier)];
    const bracket: Bracket = {
      x,
      workers,
      before,
      stale: this.#staleOf(workers),
      ticket: null,
      changes: now === null ? [] : [{ at: 0, until: 0, ...now }],
      breaks: workers.map((each) => this.#source?.weightsOf(each)?.breaks ?? 0),
      loadedAt: null,
      seams,
      // An attempt that left no token has no seam.
      earlier: seams.map((_, i) => known[i] ?? NOTHING_KNOWN),
    };
    const tap = earlier === null ? undefined : this.#taps.get(earlier);
    if (tap !== undefined) {
      this.left(earlier);
      this.follow(bracket, tap);
    }
    return bracket;
  }

  /** The response begins. Until `left`, changes of the weights are noted with their places in it. */
  follow(bracket: Bracket | null, tap: Tap): void {
    if (bracket === null || bracket.changes.length === 0) return;
    this.#note({ bracket, tap }, 0, true);
    this.#taps.set(bracket, tap);
  }

  left(bracket: Bracket | null): void {
    if (bracket !== null) this.#taps.delete(bracket);
  }

  *#at({ engineUrl }: Worker): Generator<Followed> {
    for (const [bracket, tap] of this.#taps) {
      if (bracket.workers.some((worker) => worker.engineUrl === engineUrl)) yield { bracket, tap };
    }
  }

  /** What the engine has sampled must be read before its weights change, also where the client reads slowly. */
  #loads(worker: Worker, stage: LoadStage): void {
    for (const { bracket, tap } of this.#at(worker)) {
      const { x } = bracket;
      if (stage === 'loaded') bracket.loadedAt = x.readOnBytes > 0 ? tap.end : null;
      else x.readOn(stage === 'paused');
    }
  }

  #changed(worker: Worker): void {
    for (const followed of this.#at(worker)) {
      // What this turn of the event loop still reads was sampled before, too.
      setImmediate(() => {
        const { bracket, tap } = followed;
        if (this.#taps.get(bracket) !== tap) return;
        const at = tap.end;
        this.#note(followed, at, bracket.loadedAt === at);
        bracket.loadedAt = null;
      });
    }
  }

  /**
   * @param isQuiet nothing came since the engine had loaded the weights: what it sampled before was read, unless it is still on its way. That comes
   *   with the next bytes, if at all
   */
  #note({ bracket: { workers, changes }, tap }: Followed, at: number, isQuiet: boolean): void {
    const now = this.#of(workers);
    const last = changes.at(-1)!;
    if (now === null || (now.version === last.version && now.name === last.name)) return;
    // Where the weights of before began is known by now, at the latest.
    changes[changes.length - 1] = { ...last, until: Math.min(last.until, at) };
    const place = changes.push({ at, until: Infinity, ...now }) - 1;
    if (!isQuiet) return;
    tap.onMore = () =>
      setImmediate(() => {
        if (changes[place]!.until === Infinity) changes[place] = { ...changes[place]!, until: tap.end };
      });
  }

  /** null: the router does not replace their weights. `version` is null if they are not known, or differ. */
  #of(workers: readonly Worker[]): Omit<WeightChange, 'at' | 'until'> | null {
    const all = workers.map((worker) => this.#source?.weightsOf(worker) ?? null);
    const [first] = all as [EngineWeights | null];
    if (first === null || all.includes(null)) return null;
    const isSame = all.every((each) => each!.snapshot === first.snapshot && each!.name === first.name);
    return isSame ? { version: first.snapshot, name: first.name } : { version: null, name: null };
  }

  /**
   * The version facts that are handed over with an answer, or with a part of one.
   * @param isUnnamed its engine may not have named versions in it: it will be asked when the exchange is over
   */
  asked(bracket: Bracket | null, isUnnamed: boolean): AskedVersion {
    if (bracket === null) return NOTHING_KNOWN;
    const { workers, before, seams, earlier } = bracket;
    if (isUnnamed) bracket.ticket ??= ++this.#tickets;
    const isUnbroken = before.every((label, i) => label?.updates === this.#labels.of(workers[i]!).updates);
    return {
      ...this.#beside(bracket),
      isProof: isUnbroken && before.every((label) => label?.isProof === true),
      ticket: bracket.ticket,
      ...(seams.length === 0 ? {} : { seams, earlier }),
    };
  }

  #beside({ workers, before, stale, changes }: Bracket): BesideAnswer {
    return { before: commonName(before), stale: stale ?? this.#staleOf(workers), changes: [...changes] };
  }

  #staleOf(workers: readonly Worker[]): string | null {
    return workers.map((worker) => this.#labels.of(worker).stale).find((name) => name !== null) ?? null;
  }

  /**
   * The exchange is over: asks where that was promised.
   * @param recorded settles when the turns of the answer are handed over to the thread, or can't be
   */
  complete(x: ExchangeView, bracket: Bracket | null, recorded: Promise<unknown> = Promise.resolve()): void {
    this.left(bracket);
    if (bracket === null || bracket.ticket === null) return;
    // After an engine has died, another process may answer.
    const asked = x.outcome === 'cut' ? [] : bracket.workers.map((worker) => this.#labels.of(worker).ask());
    const done = this.#complete(bracket, Promise.all(asked), recorded).finally(() => this.#open.delete(done));
    this.#open.add(done);
  }

  /** Resolves when what engines were asked for answers that have ended is on record, or they take too long; null: it is. */
  settled(): Promise<unknown> | null {
    if (this.#open.size === 0) return null;
    this.#labels.hurry();
    return cameWithin(PATIENCE_MS, Promise.all(this.#open));
  }

  async #complete(bracket: Bracket, asked: Promise<readonly Label[]>, recorded: Promise<unknown>): Promise<void> {
    const labels = await asked;
    await recorded.catch(() => {});
    const { before, changes } = bracket;
    const ticket = bracket.ticket!;
    const name = commonName(labels);
    const isProof = before.every((label, i) => {
      const after = labels[i];
      return label?.isProof === true && after?.isProof === true && after.updates === label.updates;
    });
    const isProven = changes.length === 0 && isProof && name !== null && name === commonName(before);
    const isExpected = labels.length > 0 && changes.length > 0 && this.#isExpected(bracket, labels);
    this.#onLearned({ ticket, version: isProven ? name : null, isExpected, after: name });
  }

  /** Whether engines name what they should have, and nothing has changed it past the router since they got the request. */
  #isExpected({ workers, changes, breaks }: Bracket, labels: readonly Label[]): boolean {
    return workers.every((worker, i) => {
      const weights = this.#source!.weightsOf(worker);
      if (weights === null || !weights.isSure || weights.breaks !== breaks[i]) return false;
      return (
        weights.snapshot === changes.at(-1)!.version && weights.fits(labels[i]!.name, this.#labels.of(worker).stale)
      );
    });
  }
}

/** null: they have none in common. */
function commonName(labels: readonly (Label | null)[]): string | null {
  const name = labels[0]?.name ?? null;
  return labels.every((label) => label?.name === name) ? name : null;
}
