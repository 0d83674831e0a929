import type { Fleet } from './fleet.ts';
import type { VersionLabels } from './version-labels.ts';
import type { Worker } from './worker.ts';

/** Knows what engines must have before they get requests, where the router replaces their weights itself. */
export interface WeightJudge {
  /** As `WeightVersions.areServed`; null: the router does not replace the weights of this engine. */
  areServed(worker: Worker, isReturning: boolean): Promise<boolean> | null;
  /** The engine was restarted: it has the weights that it starts with. */
  restarted(worker: Worker): void;
}

/** The engines' weight versions: an engine that comes back gets requests only if it has those of the others. */
export class WeightVersions {
  /** null: the majority of the fleet decides. */
  judge: WeightJudge | null = null;
  readonly #fleet: Fleet;
  readonly #labels: VersionLabels;
  readonly #onHeldBack: (worker: Worker, detail: string) => void;

  /** @param onHeldBack called once for each version for which a worker is held back */
  constructor(fleet: Fleet, labels: VersionLabels, onHeldBack: (worker: Worker, detail: string) => void) {
    this.#fleet = fleet;
    this.#labels = labels;
    this.#onHeldBack = onHeldBack;
  }

  /** An engine reported this version when it was identified. */
  learned(worker: Worker, version: string | null): void {
    worker.weightVersion = version;
    this.#labels.of(worker).saw(version);
  }

  async read(workers: readonly Worker[]): Promise<void> {
    await Promise.all(
      workers.map(async (worker) => {
        if (worker.engine !== null) worker.weightVersion = await this.#ask(worker);
      }),
    );
  }

  /**
   * Asks an engine. If it comes back, its version is compared with fresh answers of those that serve, because an update
   * may have bypassed the router. Engines without a version are taken to have the same weights.
   *
   * @param ranks the workers of the engine
   */
  async areServed(ranks: ReadonlySet<Worker>, isReturning: boolean): Promise<boolean> {
    const [first] = ranks;
    if (first === undefined || first.engine === null) return true;
    const judged = this.judge?.areServed(first, isReturning) ?? null;
    if (judged !== null) return judged;
    const version = await this.#ask(first);
    for (const worker of ranks) worker.weightVersion = version;
    if (!isReturning) return true;
    await this.#readServing(first.engineUrl);
    const serving = this.#fleet.servingVersion(first.engineUrl);
    const isRight = serving === null || version === null || version === serving;
    for (const worker of ranks) {
      const heldBackFor = isRight ? null : version;
      if (heldBackFor !== null && worker.heldBackFor !== heldBackFor) {
        this.#onHeldBack(worker, `holds weights "${version}", the fleet serves "${serving}"`);
      }
      worker.heldBackFor = heldBackFor;
    }
    return isRight;
  }

  /** Asks every other serving engine, once for all its ranks. */
  async #readServing(exceptUrl: string): Promise<void> {
    const byEngine = Map.groupBy(this.#fleet.workers, ({ engineUrl }) => engineUrl);
    byEngine.delete(exceptUrl);
    await Promise.all(
      Array.from(byEngine.values(), async (ranks) => {
        const serving = ranks.find((worker) => this.#fleet.isEligible(worker) && worker.engine !== null);
        if (serving === undefined) return;
        const version = await this.#ask(serving);
        for (const worker of ranks) worker.weightVersion = version;
      }),
    );
  }

  async #ask(worker: Worker): Promise<string | null> {
    return (await this.#labels.of(worker).ask(true)).name;
  }
}
