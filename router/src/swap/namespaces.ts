/** Sessions whose namespace is kept, for each engine: the least recently used ones are forgotten and count as new. */
const MAX_PINS = 65_536;

/** How a swap left the namespaces of prompt caches. */
export interface NamespaceStep {
  /** The number of the swap in its ledger. */
  readonly seq: number;
  /** The namespace of new sessions from this swap on; '' before the first reset. */
  readonly namespace: string;
  /** The last swap up to this one that reset all sessions; 0: none. */
  readonly resetAllSeq: number;
}

/** The namespaces of one engine's prompt cache: one for new sessions, and those in which older sessions go on. */
export class Namespaces {
  #step: NamespaceStep = { seq: 0, namespace: '', resetAllSeq: 0 };
  /** By session, least recently used first. */
  readonly #pins = new Map<string, string>();

  /** The engine has loaded the weights of this swap. */
  apply(step: NamespaceStep): void {
    // The engine may have missed the swap that reset all sessions.
    if (step.resetAllSeq > this.#step.seq) this.#pins.clear();
    this.#step = step;
  }

  /** @param session '' for a session of its own */
  of(session: string): string {
    const { namespace } = this.#step;
    if (session === '') return namespace;
    const pinned = this.#pins.get(session) ?? namespace;
    this.#pins.delete(session);
    this.#pins.set(session, pinned);
    if (this.#pins.size > MAX_PINS) this.#pins.delete(this.#pins.keys().next().value!);
    return pinned;
  }
}
