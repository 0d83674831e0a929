/** What was opened, and how each of it is closed: in the opposite order, since what came later uses what came before. */
export class Closers {
  readonly #closers: (() => unknown)[] = [];

  /** @param close may answer a promise: what came before is closed after it */
  add(close: () => unknown): void {
    this.#closers.push(close);
  }

  /** Closes each once, also where another one can't be closed. Rejects with the first error then. */
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
