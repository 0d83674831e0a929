import { UNSET } from '../engines/weight-label.ts';

/** Least time between two requests to one engine: all callers in between share a response. */
const SPACING_MS = 50;
/** The same for an engine that did not report a version. */
const MUTE_SPACING_MS = 1_000;

/** The weight version that an engine reported. */
export interface Label {
  /** null: the engine did not report one. */
  readonly name: string | null;
  /**
   * Whether the name identifies one set of weights. `default` does not, because it was never set; nor does a name that
   * stayed the same after an update of the weights, nor any name during an update.
   */
  readonly isProof: boolean;
  /** How many starts and ends of updates the router had seen when it asked the engine. */
  readonly updates: number;
}

/** Asks one engine for its weight version, and knows whether the answer proves which weights it has. */
export class EngineLabel {
  /** The last answer with a name. */
  newest: Label | null = null;
  /** Starts and ends of updates that the router has seen, and restarts. */
  updates = 0;
  /** Ended updates that were not refused: each may have changed the weights. */
  realUpdates = 0;
  readonly #read: () => Promise<string | null>;
  readonly #onNamed: (name: string, stale: string | null) => void;
  #updating = 0;
  /** Updates since the name was last compared: the name before them (null: unknown), and whether one was real. */
  #unproven: { readonly before: string | null; isReal: boolean } | null = null;
  /** A name that stayed the same after an update. */
  #stale: string | null = null;
  #askedMs = -Infinity;
  #isMute = false;
  #isAsking = false;
  #isUrgent = false;
  /** The callers that wait for the next question to the engine. */
  #waiting: PromiseWithResolvers<Label> | null = null;
  #timer: NodeJS.Timeout | null = null;

  /**
   * @param read asks the engine; null: it did not report a version
   * @param onNamed called with a name that it reported, unless its weights were being updated meanwhile
   */
  constructor(read: () => Promise<string | null>, onNamed: (name: string, stale: string | null) => void = () => {}) {
    this.#read = read;
    this.#onNamed = onNamed;
  }

  /** When the engine was last asked (monotonic ms). */
  get askedMs(): number {
    return this.#askedMs;
  }

  /** A name that the engine kept although its weights were updated; null if there is none. */
  get stale(): string | null {
    return this.#stale;
  }

  /**
   * The engine's answer to a question that is asked after this call.
   * @param isUrgent asks at once, without the least time between questions
   */
  ask(isUrgent = false): Promise<Label> {
    this.#waiting ??= Promise.withResolvers();
    this.#isUrgent ||= isUrgent;
    this.#schedule();
    return this.#waiting.promise;
  }

  /** Asks at once if a caller is waiting. */
  hurry(): void {
    if (this.#waiting === null) return;
    this.#isUrgent = true;
    this.#schedule();
  }

  /** The engine reported this name in another response. */
  saw(name: string | null): void {
    // The response may be older than an update that has ended since then.
    if (name === null || this.#unproven !== null) return;
    this.newest = { name, updates: this.updates, isProof: this.#proves(name, this.updates) };
  }

  updateBegan(): void {
    this.#unproven ??= { before: this.newest?.name ?? null, isReal: false };
    this.updates++;
    this.#updating++;
  }

  /** @param isReal false: the engine refused the update and kept its weights */
  updateEnded(isReal: boolean): void {
    this.updates++;
    if (isReal) this.realUpdates++;
    this.#updating--;
    if (this.#unproven === null) return;
    this.#unproven.isReal ||= isReal;
    if (this.#updating > 0) return;
    // Responses name weights too, so the router must know at once whether that name is stale.
    if (this.#unproven.isReal) void this.ask(true);
    else this.#unproven = null;
  }

  /** The engine was restarted. */
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
    if (name !== null && this.#updating === 0 && updates === this.updates) this.#onNamed(name, this.#stale);
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
