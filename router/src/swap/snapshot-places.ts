import type { LoadableSnapshot } from './engine-swap.ts';
import type { SwapEngine } from './engine.ts';
import type { Ledger, LedgerEntry } from './ledger.ts';
import type { WorkerSetOptions } from './worker-set.ts';

const ASK_TIMEOUT_MS = 10_000;

/** Where the engines of a set find snapshots, and what is under those that are adapters. */
export class SnapshotPlaces {
  readonly #options: WorkerSetOptions;
  readonly #ledger: Ledger;

  constructor(options: WorkerSetOptions, ledger: Ledger) {
    this.#options = options;
    this.#ledger = ledger;
  }

  /** Where an engine finds these weights. @param whole what is under them, if they are an adapter. Left out: as the ledger has it */
  of(identity: string, engine: SwapEngine, whole?: string | null): LoadableSnapshot {
    // A trainer may have stored what it sent.
    const path = this.#ledger.pathOf(identity) ?? this.pathOf(identity);
    const below = whole === undefined ? this.wholeOf(this.#ledger.find(identity)) : whole;
    const under = below === null || below === identity ? null : this.of(below, engine, null);
    return { identity, path: path === '' ? engine.bootPath : path, under };
  }

  /** Where engines find a snapshot; '' for the weights that they were started with. */
  pathOf(identity: string): string {
    const { baseIdentity, snapshots } = this.#options;
    return identity === baseIdentity ? '' : snapshots.replaceAll('{identity}', identity);
  }

  /** The snapshot that the set has. */
  get current(): string {
    return this.#identityOf(this.#ledger.current);
  }

  /** The snapshot that the set had before a swap. */
  identityBefore(entry: LedgerEntry): string {
    return this.#identityOf(this.#ledger.before(entry));
  }

  /** Where engines find that snapshot; undefined: where the deployment says. */
  pathBefore(entry: LedgerEntry): string | undefined {
    return (this.#ledger.before(entry) ?? this.#ledger.start).path ?? undefined;
  }

  #identityOf(entry: LedgerEntry | null): string {
    return (entry ?? this.#ledger.start).identity ?? this.#options.baseIdentity;
  }

  /** The whole weights of engines that have the snapshot of a swap. @param entry null: none was loaded */
  wholeOf(entry: LedgerEntry | null): string {
    const { whole, identity } = entry ?? this.#ledger.start;
    return whole ?? identity ?? this.#options.baseIdentity;
  }

  /** Engines that report a path report that of the last load: the first one counts. */
  async findBootPath(engine: SwapEngine, holds: string): Promise<void> {
    if (holds === this.#options.baseIdentity) {
      engine.bootPath = await engine.readPath(ASK_TIMEOUT_MS);
      if (engine.bootPath !== null) this.#ledger.noteBootPath(engine.url, engine.bootPath);
    } else engine.bootPath ??= engine.kind === 'sglang' ? this.#ledger.bootPathOf(engine.url) : '';
  }
}
