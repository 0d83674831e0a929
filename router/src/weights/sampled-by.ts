import type { EngineWeights } from './engine-weights.ts';
import type { Worker } from '../fleet/worker.ts';

/** From this byte of the payload on. */
interface Change {
  readonly at: number;
  /** null: not known. */
  readonly snapshot: string | null;
}

type Named = Pick<EngineWeights, 'snapshot' | 'name'>;

/**
 * Which snapshot sampled which bytes of one response. The engine samples nothing from its pause to its resume, and the snapshot changes in
 * between: what has arrived by then is of the old weights, however late it is passed on.
 */
export class SampledBy {
  readonly worker: Worker;
  /** `EngineWeights.breaks` when the engine got the request. */
  readonly breaks: number;
  readonly #changes: Change[] = [];
  /** By the engine's own names. */
  readonly #byName = new Map<string, string | null>();
  #arrived = 0;
  #passed = 0;
  /** How much had arrived when the engine had loaded weights; null: not all that it had sampled. */
  #loadedAt: number | null = null;

  /** @param weights of the engine when it gets the request; null: the router does not replace them */
  constructor(worker: Worker, weights: EngineWeights | null) {
    this.worker = worker;
    this.breaks = weights?.breaks ?? 0;
    this.#add(0, weights);
  }

  get newest(): string | null {
    return this.#changes.at(-1)!.snapshot;
  }

  /** All snapshots since the engine got the request, oldest first; empty if one of them is not known. */
  get known(): readonly string[] {
    const all = this.#changes.map(({ snapshot }) => snapshot);
    return all.includes(null) ? [] : (all as string[]);
  }

  /** @returns the snapshot that the engine means by a name; null: none that it should have */
  named(name: string): string | null {
    return this.#byName.get(name) ?? null;
  }

  /** The engine has loaded other weights, and still samples nothing. @param isReadOn all that it had sampled is being read */
  loaded(isReadOn: boolean): void {
    this.#loadedAt = isReadOn ? this.#arrived : null;
  }

  changed(weights: Named | null): void {
    const isPlaceKnown = this.#arrived === 0 || this.#loadedAt === this.#arrived;
    this.#loadedAt = null;
    if ((weights?.snapshot ?? null) === this.newest) return;
    this.#add(this.#arrived, weights);
    // What was sampled with the weights of before may still come.
    if (!isPlaceKnown) this.#changes.push({ at: this.#arrived, snapshot: null });
  }

  #add(at: number, weights: Named | null): void {
    const snapshot = weights?.snapshot ?? null;
    this.#changes.push({ at, snapshot });
    if (weights !== null) this.#byName.set(weights.name, snapshot);
  }

  arrived(bytes: number): void {
    this.#arrived += bytes;
  }

  /** @returns the snapshot of the next part of the response, which has so many bytes: that at the arrival of its first byte */
  passed(bytes: number): string | null {
    const start = this.#passed;
    this.#passed += bytes;
    return this.#changes.findLast(({ at }) => at <= start)!.snapshot;
  }
}
