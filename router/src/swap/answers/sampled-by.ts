import type { Worker } from '../../fleet/worker.ts';

/** From this byte of the payload on. */
interface Change {
  readonly at: number;
  readonly snapshot: string | null;
}

/**
 * Which snapshot sampled which bytes of one response. The engine samples nothing from its pause to its resume, and the snapshot changes in
 * between: what has arrived by then is of the old weights, however late it is passed on.
 */
export class SampledBy {
  readonly worker: Worker;
  readonly #changes: Change[];
  #arrived = 0;
  #passed = 0;

  /** @param snapshot that the engine has when it gets the request; null: not known */
  constructor(worker: Worker, snapshot: string | null) {
    this.worker = worker;
    this.#changes = [{ at: 0, snapshot }];
  }

  get newest(): string | null {
    return this.#changes.at(-1)!.snapshot;
  }

  /** All snapshots since the engine got the request, oldest first. */
  get known(): readonly string[] {
    return this.#changes.flatMap(({ snapshot }) => snapshot ?? []);
  }

  changed(snapshot: string | null): void {
    if (snapshot !== this.newest) this.#changes.push({ at: this.#arrived, snapshot });
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
