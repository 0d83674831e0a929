/** How much the newest observation counts once enough were seen. */
const KEPT = 200;
const ENDS_KEPT = 512;
/** Expectations before anything was seen, and how many observations they are worth. */
const GUESS = { answerTokens: 1_200, turnTokens: 1_000, turns: 10 };
const GUESSES = 5;
/** So many are needed before a habit is believed: later turns, ends that were told. */
const HABIT = 8;

/** A mean that follows its last observations. */
interface Mean {
  count: number;
  value: number;
}

function see(mean: Mean, value: number, kept: number): void {
  mean.count = Math.min(mean.count + 1, kept);
  mean.value += (value - mean.value) / mean.count;
}

/**
 * What was learned of the work that comes. RL repeats its workload every step, so one batch is the expectation for the next;
 * it is kept across restarts.
 */
export class Workload {
  readonly #answerTokens: Mean = { count: GUESSES, value: GUESS.answerTokens };
  readonly #turnTokens: Mean = { count: GUESSES, value: GUESS.turnTokens };
  readonly #turns: Mean = { count: GUESSES, value: GUESS.turns };
  readonly #counts = { laterTurns: 0, signalled: 0, expired: 0 };

  /** Tokens of an answer. */
  get answerTokens(): number {
    return this.#answerTokens.value;
  }

  /** Tokens by which a session's context grows in a turn. */
  get turnTokens(): number {
    return this.#turnTokens.value;
  }

  /** Turns of a session. */
  get turns(): number {
    return this.#turns.value;
  }

  /** Sessions have turns; otherwise every request stands for itself. */
  get hasTurns(): boolean {
    return this.#counts.laterTurns >= HABIT;
  }

  /** Clients say when sessions end, mostly. */
  get hasEndSignals(): boolean {
    return this.#counts.signalled >= HABIT && this.#counts.signalled > this.#counts.expired;
  }

  sawAnswer(tokens: number): void {
    see(this.#answerTokens, tokens, KEPT);
  }

  sawLaterTurn(growthTokens: number): void {
    this.#counts.laterTurns = Math.min(this.#counts.laterTurns + 1, 1_000);
    see(this.#turnTokens, growthTokens, KEPT);
  }

  /** A session ended: because its client said so, or because none of its requests came any more. */
  sawEnd(turns: number, isSignalled: boolean): void {
    see(this.#turns, turns, ENDS_KEPT);
    const counts = this.#counts;
    if (isSignalled) counts.signalled++;
    else counts.expired++;
    if (counts.signalled + counts.expired <= 1_000) return;
    counts.signalled /= 2;
    counts.expired /= 2;
  }

  /** As text, for the next process. */
  save(): string {
    const means = { answerTokens: this.#answerTokens, turnTokens: this.#turnTokens, turns: this.#turns };
    return JSON.stringify({ ...means, ...this.#counts });
  }

  /** Takes over what an earlier process saved; what is not an amount there is left as it is. */
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
