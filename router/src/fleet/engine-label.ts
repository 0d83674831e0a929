/** SGLang and vLLM name the weights that they started with so, unless they are told another name. */
const UNSET = 'default';

/** At least so much time is between two questions to one engine: all that want to know in between share an answer. */
const SPACING_MS = 50;
/** The same for an engine that did not answer with a name. */
const MUTE_SPACING_MS = 1_000;

/** What an engine named its weights when it was asked. */
export interface Label {
  /** null: it did not say. */
  readonly name: string | null;
  /**
   * The name tells one set of weights from another. `default` does not, as it was never set; nor does a name that stayed the same
   * although the router saw an update of the weights, or any name while such an update is under way.
   */
  readonly isProof: boolean;
  /** How many beginnings and ends of updates the router had seen when the engine was asked. */
  readonly updates: number;
}

/** The name of one engine's weights: asks for it, and knows how far it proves which weights those are. */
export class EngineLabel {
  /** The last answer with a name. */
  newest: Label | null = null;
  /** How many beginnings and ends of updates the router has seen, and restarts. */
  updates = 0;
  readonly #read: () => Promise<string | null>;
  #updating = 0;
  /** Updates that were seen since the name was last compared: the name before them (null: not known), and whether one changed anything. */
  #unproven: { readonly before: string | null; isReal: boolean } | null = null;
  /** A name that stayed the same over an update. */
  #stale: string | null = null;
  #askedMs = -Infinity;
  #isMute = false;
  #isAsking = false;
  #isUrgent = false;
  /** Those that want an answer to a question that is not asked yet. */
  #waiting: PromiseWithResolvers<Label> | null = null;
  #timer: NodeJS.Timeout | null = null;

  /** @param read asks the engine; null: it did not say */
  constructor(read: () => Promise<string | null>) {
    this.#read = read;
  }

  /** When the last question was asked (monotonic ms). */
  get askedMs(): number {
    return this.#askedMs;
  }

  /** A name that the engine kept although the router saw an update of its weights; null: none is known. */
  get stale(): string | null {
    return this.#stale;
  }

  /**
   * What the engine says to a question that is asked after this call.
   * @param isUrgent ask at once, however short ago the last question was
   */
  ask(isUrgent = false): Promise<Label> {
    this.#waiting ??= Promise.withResolvers();
    this.#isUrgent ||= isUrgent;
    this.#schedule();
    return this.#waiting.promise;
  }

  /** Asks at once, if anybody waits. */
  hurry(): void {
    if (this.#waiting === null) return;
    this.#isUrgent = true;
    this.#schedule();
  }

  /** What the engine said to somebody else just now. */
  saw(name: string | null): void {
    // It may have been asked before an update that has ended by now.
    if (name === null || this.#unproven !== null) return;
    this.newest = { name, updates: this.updates, isProof: this.#proves(name, this.updates) };
  }

  updateBegan(): void {
    this.#unproven ??= { before: this.newest?.name ?? null, isReal: false };
    this.updates++;
    this.#updating++;
  }

  /** @param isReal false: the engine refused it, and has the weights that it had before */
  updateEnded(isReal: boolean): void {
    this.updates++;
    this.#updating--;
    if (this.#unproven === null) return;
    this.#unproven.isReal ||= isReal;
    if (this.#updating > 0) return;
    // Answers that name weights are read without a question: whether that name is stale has to be known at once.
    if (this.#unproven.isReal) void this.ask(true);
    else this.#unproven = null;
  }

  /** Another process has its address now. */
  restarted(): void {
    this.updates++;
  }

  #schedule(): void {
    if (this.#isAsking) return;
    const spacingMs = this.#isMute ? MUTE_SPACING_MS : SPACING_MS;
    const inMs = this.#isUrgent ? 0 : Math.max(0, this.#askedMs + spacingMs - performance.now());
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#askNow(), inMs).unref();
  }

  async #askNow(): Promise<void> {
    const waiting = this.#waiting!;
    this.#waiting = null;
    this.#isUrgent = false;
    this.#isAsking = true;
    this.#askedMs = performance.now();
    const { updates } = this;
    const name = await this.#read().catch(() => null);
    this.#isAsking = false;
    this.#isMute = name === null;
    const label = { name, updates, isProof: this.#proves(name, updates) };
    if (name !== null) this.newest = label;
    waiting.resolve(label);
    if (this.#waiting !== null) this.#schedule();
  }

  #proves(name: string | null, updates: number): boolean {
    if (name === null || this.#updating > 0 || updates !== this.updates) return false;
    if (this.#unproven !== null) {
      const { before } = this.#unproven;
      this.#stale = before === null || before === name ? name : null;
      this.#unproven = null;
    } else if (this.#stale !== name) this.#stale = null;
    return name !== UNSET && name !== this.#stale;
  }
}
