import type { EngineKind } from '../engines/engine.ts';
import { engines, identify } from '../engines/engines.ts';
import { EngineLabel } from './engine-label.ts';
import type { Fleet } from './fleet.ts';
import type { Worker } from './worker.ts';

/** The interval in which a watched engine is asked. */
const POLL_MS = 250;
/** With many engines the interval is longer: this much per engine. */
const POLL_MS_EACH = 5;
/** How long an engine is watched after a request needed its version. */
const INTEREST_MS = 600_000;

/** The weight versions of all engines of a fleet: one `EngineLabel` per engine, whatever its number of ranks. */
export class VersionLabels {
  readonly #fleet: Fleet;
  readonly #options: { readonly timeoutMs: number };
  /** By `engineUrl`. */
  readonly #labels = new Map<string, EngineLabel>();
  /** Until when each engine is watched. */
  readonly #interestMs = new Map<EngineLabel, number>();
  #poll: NodeJS.Timeout | null = null;
  /** Learns what engines report, unless their weights were being updated; null: not needed. */
  onNamed: ((worker: Worker, name: string, stale: string | null) => void) | null = null;

  constructor(fleet: Fleet, options: { readonly timeoutMs: number }) {
    this.#fleet = fleet;
    this.#options = options;
    fleet.onEvent((event, { engineUrl }) => {
      if (event !== 'removed' || fleet.workers.some((worker) => worker.engineUrl === engineUrl)) return;
      const label = this.#labels.get(engineUrl);
      if (label !== undefined) this.#interestMs.delete(label);
      this.#labels.delete(engineUrl);
    });
  }

  of({ engineUrl }: Worker): EngineLabel {
    let label = this.#labels.get(engineUrl);
    if (label === undefined) {
      const onNamed = (name: string, stale: string | null): void => this.#named(engineUrl, name, stale);
      label = new EngineLabel(this.#readerOf(engineUrl), onNamed);
      this.#labels.set(engineUrl, label);
    }
    return label;
  }

  /** Asks now and then at intervals for some minutes: requests need the version before they are sent. */
  watch(worker: Worker): void {
    const label = this.of(worker);
    this.#interestMs.set(label, performance.now() + INTEREST_MS);
    void label.ask();
    this.#poll ??= setInterval(() => this.#askAgain(), POLL_MS).unref();
  }

  /** Asks at once every engine with a waiting caller. */
  hurry(): void {
    for (const label of this.#labels.values()) label.hurry();
  }

  close(): void {
    if (this.#poll !== null) clearInterval(this.#poll);
  }

  #named(engineUrl: string, name: string, stale: string | null): void {
    if (this.onNamed === null) return;
    const worker = this.#fleet.workers.find((each) => each.engineUrl === engineUrl);
    if (worker !== undefined) this.onNamed(worker, name, stale);
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

  #readerOf(engineUrl: string): () => Promise<string | null> {
    // Without health checks the kind of the engine is not known otherwise.
    let found: EngineKind | null = null;
    return async () => {
      const ranks = this.#fleet.workers.filter((worker) => worker.engineUrl === engineUrl);
      const [worker] = ranks;
      if (worker === undefined) return null;
      const asker = worker.asker(this.#options.timeoutMs);
      const kind = worker.engine ?? found ?? (await identify(asker)).kind;
      // An engine that does not answer is `openai` too, so that kind is not kept.
      if (kind !== 'openai') found = kind;
      const name = await engines[kind].readWeightVersion(asker);
      if (name !== null) for (const rank of ranks) rank.weightVersion = name;
      return name;
    };
  }
}
