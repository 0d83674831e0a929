/** Closes parts in the opposite order of their start, because later parts use earlier ones. */
export class Closers {
  readonly #closers: (() => unknown)[] = [];

  /** @param close may return a promise, which is awaited before earlier parts are closed */
  add(close: () => unknown): void {
    this.#closers.push(close);
  }

  /** Closes every part, also if another one fails. Rejects with the first error. */
  async close(): Promise<void> {
    const errors: unknown[] = [];
    for (const close of this.#closers.splice(0).toReversed()) {
      try {
        await close();
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length > 0) throw errors[0];
  }
}
