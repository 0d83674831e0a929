/** Faults of control requests, for tests of what a router does then. */

/**
 * - `fail_before`: 500, and nothing has changed;
 * - `fail_after`: 500 although it was done;
 * - `lose_answer`: it is done and the connection breaks off;
 * - `deny`: 200 with `"success": false` after other members, and nothing has changed;
 * - `pretend`: 200 with `"success": true`, and nothing has changed;
 * - `fail_half`: weights are half written, then 500;
 * - `fail_flush`: weights are written, then 400 because the cache was not flushed (SGLang 0.5.23);
 * - `die`: the engine ends as in a crash, half-way through.
 */
export type Fault =
  | 'fail_before'
  | 'deny'
  | 'pretend'
  | 'fail_after'
  | 'lose_answer'
  | 'fail_half'
  | 'fail_flush'
  | 'die';

export class Faults {
  /** Control requests that came, as `/path?query`. */
  readonly calls: string[] = [];
  /** Ends the engine. */
  die: () => void = () => {};
  readonly #planned: { readonly path: string; readonly fault: Fault; left: number }[] = [];

  /** The next `times` requests for this path have the fault. */
  add(path: string, fault: Fault, times = 1): void {
    this.#planned.push({ path, fault, left: times });
  }

  /** Later requests have no fault. */
  forget(): void {
    this.#planned.length = 0;
  }

  take(path: string): Fault | null {
    const planned = this.#planned.find((each) => each.path === path && each.left > 0);
    if (planned === undefined) return null;
    planned.left--;
    return planned.fault;
  }
}
