/** The weight of the newest observation is one in this many, once there are enough. */
const KEPT = 200;
const ENDS_KEPT = 512;
/** Expectations before any observation, and the number of observations that they count as. */
const GUESS = { answerTokens: 1_200, turnTokens: 1_000, turns: 10, turnSecs: 10 };
const GUESSES = 5;
/** Observations needed before a pattern is assumed: later turns, end signals. */
const HABIT = 8;

/** A mean of the latest observations. */
interface Mean {
  count: number;
  value: number;
}

function see(mean: Mean, value: number, kept: number): void {
  mean.count = Math.min(mean.count + 1, kept);
  mean.value += (value - mean.value) / mean.count;
}

/**
 * What was learned of the workload. RL repeats its workload at every step, so one batch predicts the next. It is saved
 * across restarts.
 */
export class Workload {
  readonly #answerTokens: Mean = { count: GUESSES, value: GUESS.answerTokens };
  readonly #turnTokens: Mean = { count: GUESSES, value: GUESS.turnTokens };
  readonly #turns: Mean = { count: GUESSES, value: GUESS.turns };
  readonly #turnSecs: Mean = { count: GUESSES, value: GUESS.turnSecs };
  readonly #counts = { laterTurns: 0, signalled: 0, expired: 0 };

  /** Mean tokens of a response. */
  get answerTokens(): number {
    return this.#answerTokens.value;
  }

  /** Mean tokens by which a session's context grows in a turn. */
  get turnTokens(): number {
    return this.#turnTokens.value;
  }

  /** Mean turns of a session. */
  get turns(): number {
    return this.#turns.value;
  }

  /** Mean seconds from when a turn is sent to a worker until the session's next turn arrives. */
  get turnSecs(): number {
    return this.#turnSecs.value;
  }

  /** Whether sessions have more than one turn. */
  get hasTurns(): boolean {
    return this.#counts.laterTurns >= HABIT;
  }

  /** Whether clients usually send a session end signal. */
  get hasEndSignals(): boolean {
    return this.#counts.signalled >= HABIT && this.#counts.signalled > this.#counts.expired;
  }

  sawAnswer(tokens: number): void {
    see(this.#answerTokens, tokens, KEPT);
  }

  /** @param secs since the turn before was sent to a worker; null: not known */
  sawLaterTurn(growthTokens: number, secs: number | null): void {
    this.#counts.laterTurns = Math.min(this.#counts.laterTurns + 1, 1_000);
    see(this.#turnTokens, growthTokens, KEPT);
    if (secs !== null) see(this.#turnSecs, secs, KEPT);
  }

  /** A session ended by a signal of its client, or because it was idle. */
  sawEnd(turns: number, isSignalled: boolean): void {
    see(this.#turns, turns, ENDS_KEPT);
    const counts = this.#counts;
    if (isSignalled) counts.signalled++;
    else counts.expired++;
    if (counts.signalled + counts.expired <= 1_000) return;
    counts.signalled /= 2;
    counts.expired /= 2;
  }

  /** For the next process. */
  save(): string {
    const means = {
      answerTokens: this.#answerTokens,
      turnTokens: this.#turnTokens,
      turns: this.#turns,
      turnSecs: this.#turnSecs,
    };
    return JSON.stringify({ ...means, ...this.#counts });
  }

  /** Loads what an earlier process saved; values that are not valid are ignored. */
  load(text: string): void {
    let saved: Record<string, unknown>;
    try {
      saved = JSON.parse(text) as Record<string, unknown>;
    } catch {
      return;
    }
    take(this.#answerTokens, saved['answerTokens']);
    take(this.#turnTokens, saved['turnTokens']);
    take(this.#turns, saved['turns']);
    take(this.#turnSecs, saved['turnSecs']);
    take(this.#counts, saved);
  }
}

function take(target: object, saved: unknown): void {
  if (typeof saved !== 'object' || saved === null) return;
  for (const [name, value] of Object.entries(saved)) {
    const isAmount = typeof value === 'number' && Number.isFinite(value) && value >= 0;
    if (isAmount && name in target) Object.assign(target, { [name]: value });
  }
}
