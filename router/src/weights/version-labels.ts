import type { EngineKind } from '../engines/engine.ts';
import { engines, identify } from '../engines/engines.ts';
import type { Fleet } from '../fleet/fleet.ts';
import type { WeightCheck } from '../fleet/health-watch.ts';
import type { Worker } from '../fleet/worker.ts';
import { EngineLabel } from './engine-label.ts';

/** The interval in which a watched engine is asked. */
const POLL_MS = 250;
/** With many engines the interval is longer: this much per engine. */
const POLL_MS_EACH = 5;
/** How long an engine is watched after a request needed its version. */
const INTEREST_MS = 600_000;

/** Knows what engines must have before they get requests, where the router replaces their weights itself. */
export interface WeightJudge {
  /** As `WeightCheck.areServed`; null: the router does not replace the weights of this engine. */
  areServed(worker: Worker, isReturning: boolean): Promise<boolean> | null;
  /** The engine was restarted: it has the weights that it starts with. */
  restarted(worker: Worker): void;
  /** An engine reported this name, while its weights were not being updated. `stale`: see `EngineLabel`. */
  named(worker: Worker, name: string, stale: string | null): void;
}

/**
 * The weight versions that the engines of a fleet report: one `EngineLabel` per engine, whatever its number of ranks. An engine that comes
 * back gets requests only if it has the version of the others.
 */
export class VersionLabels implements WeightCheck {
  /** null: the majority of the fleet decides which weights are right. */
  judge: WeightJudge | null = null;
  readonly #fleet: Fleet;
  readonly #options: { readonly timeoutMs: number };
  /** By `engineUrl`. */
  readonly #labels = new Map<string, EngineLabel>();
  /** Until when each engine is watched. */
  readonly #interestMs = new Map<EngineLabel, number>();
  #poll: NodeJS.Timeout | null = null;

  constructor(fleet: Fleet, options: { readonly timeoutMs: number }) {
    this.#fleet = fleet;
    this.#options = options;
    fleet.onEvent((event, { engineUrl }) => {
      if (event !== 'removed' || this.#ranksOf(engineUrl).length > 0) return;
      const label = this.#labels.get(engineUrl);
      if (label !== undefined) this.#interestMs.delete(label);
      this.#labels.delete(engineUrl);
    });
  }

  of({ engineUrl }: Worker): EngineLabel {
    let label = this.#labels.get(engineUrl);
    if (label === undefined) {
      label = new EngineLabel(this.#readerOf(engineUrl), (name, stale) => {
        const [worker] = this.#ranksOf(engineUrl);
        if (worker !== undefined) this.judge?.named(worker, name, stale);
      });
      // The last worker of the engine may have been removed while requests of it are in flight: nothing would remove the label.
      if (this.#ranksOf(engineUrl).length > 0) this.#labels.set(engineUrl, label);
    }
    return label;
  }

  /** Asks the engine at once. */
  async nameOf(worker: Worker): Promise<string | null> {
    return (await this.of(worker).ask(true)).name;
  }

  /** Asks now and then at intervals for some minutes: requests need the version before they are sent. */
  watch(worker: Worker): void {
    const label = this.of(worker);
    if (this.#labels.get(worker.engineUrl) !== label) return;
    this.#interestMs.set(label, performance.now() + INTEREST_MS);
    void label.ask();
    this.#poll ??= setInterval(() => this.#askAgain(), POLL_MS).unref();
  }

  /** Asks at once every engine with a waiting caller. */
  hurry(): void {
    for (const label of this.#labels.values()) label.hurry();
  }

  learned(worker: Worker, version: string | null): void {
    worker.weightVersion = version;
    this.of(worker).saw(version);
  }

  restarted(worker: Worker): void {
    this.of(worker).restarted();
    this.judge?.restarted(worker);
  }

  async read(workers: readonly Worker[]): Promise<void> {
    await Promise.all(
      workers.map(async (worker) => {
        if (worker.engine !== null) worker.weightVersion = await this.nameOf(worker);
      }),
    );
  }

  /**
   * Asks an engine. If it comes back, its version is compared with fresh answers of those that serve, because an update
   * may have bypassed the router. Engines without a version are taken to have the same weights.
   */
  async areServed(
    ranks: ReadonlySet<Worker>,
    isReturning: boolean,
    listed: Promise<void> | null,
    onHeldBack: (worker: Worker, detail: string) => void,
  ): Promise<boolean> {
    const [first] = ranks;
    if (first === undefined || first.engine === null) return true;
    const judged = this.judge?.areServed(first, isReturning) ?? null;
    if (judged !== null) return judged;
    const version = await this.#readFor(first, ranks);
    if (!isReturning) return true;
    await this.#readServing(first.engineUrl);
    // Each model has its own weights, so they can be wrong only where it is known which models the engine serves.
    if (!this.#isServed(first, version)) await listed;
    const isRight = this.#isServed(first, version);
    const serving = this.#fleet.servingVersion(first);
    for (const worker of ranks) {
      const heldBackFor = isRight ? null : version;
      if (heldBackFor !== null && worker.heldBackFor !== heldBackFor) {
        onHeldBack(worker, `holds weights "${version}", the fleet serves "${serving}"`);
      }
      worker.heldBackFor = heldBackFor;
    }
    return isRight;
  }

  close(): void {
    if (this.#poll !== null) clearInterval(this.#poll);
  }

  #isServed(worker: Worker, version: string | null): boolean {
    const serving = this.#fleet.servingVersion(worker);
    return version === null || serving === null || version === serving;
  }

  /** Asks every other serving engine, once for all its ranks. */
  async #readServing(exceptUrl: string): Promise<void> {
    const byEngine = Map.groupBy(this.#fleet.workers, ({ engineUrl }) => engineUrl);
    byEngine.delete(exceptUrl);
    await Promise.all(
      Array.from(byEngine.values(), async (ranks) => {
        const serving = ranks.find((worker) => this.#fleet.isEligible(worker) && worker.engine !== null);
        if (serving !== undefined) await this.#readFor(serving, ranks);
      }),
    );
  }

  async #readFor(worker: Worker, ranks: Iterable<Worker>): Promise<string | null> {
    const version = await this.nameOf(worker);
    for (const rank of ranks) rank.weightVersion = version;
    return version;
  }

  #askAgain(): void {
    const nowMs = performance.now();
    const everyMs = Math.max(POLL_MS, POLL_MS_EACH * this.#interestMs.size);
    for (const [label, untilMs] of this.#interestMs) {
      if (nowMs > untilMs) this.#interestMs.delete(label);
      else if (nowMs - label.askedMs >= everyMs) void label.ask();
    }
    if (this.#interestMs.size > 0 || this.#poll === null) return;
    clearInterval(this.#poll);
    this.#poll = null;
  }

  #ranksOf(engineUrl: string): Worker[] {
    return this.#fleet.workers.filter((worker) => worker.engineUrl === engineUrl);
  }

  #readerOf(engineUrl: string): () => Promise<string | null> {
    // Without health checks the kind of the engine is not known otherwise.
    let found: EngineKind | null = null;
    return async () => {
      const ranks = this.#ranksOf(engineUrl);
      const [worker] = ranks;
      if (worker === undefined) return null;
      const asker = worker.asker(this.#options.timeoutMs);
      const kind = worker.engine ?? found ?? (await identify(asker)).kind;
      // A proxy may answer 404 while the engine behind it loads, so that kind is not kept.
      if (kind !== 'openai') found = kind;
      const name = await engines[kind].readWeightVersion(asker);
      if (name !== null) for (const rank of ranks) rank.weightVersion = name;
      return name;
    };
  }
}
