/** So many names are remembered. */
const MAX_NAMES = 100_000;

/** Names of sessions that have turns which are not on record any more. When some had to be forgotten, any other name may be one too. */
export class LostSessions {
  readonly #names = new Set<string>();
  #hasForgotten = false;

  add(name: string): void {
    this.#names.delete(name);
    this.#names.add(name);
    if (this.#names.size <= MAX_NAMES) return;
    this.#hasForgotten = true;
    this.#names.delete(this.#names.values().next().value!);
  }

  has(name: string): boolean {
    return this.#hasForgotten || this.#names.has(name);
  }
}
