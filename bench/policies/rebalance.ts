// Moves unfinished work: at the end of a batch a few engines run long sequences together while others are idle.
import type { EngineOptions } from './engine-options.ts';
import { prefillTime } from './engine-options.ts';
import type { Engine } from './engine.ts';
import type { Job } from './job.ts';

/** How long responses still get: `known` is more than any router can know, `learned` is the mean of those that were longer. */
export type Foresight = 'known' | 'learned';

export interface RebalanceOptions {
  readonly foresight: Foresight;
  /** A move must shorten the time to the end of both engines' work by this share. */
  readonly leastGain: number;
}

/** A running sequence: tokens that it has with its prompt, and tokens to come. */
interface Sequence {
  readonly job: Job;
  readonly held: number;
  readonly left: number;
}

/** Moves of one response. */
const MAX_MOVES = 3;
/** Of an engine, the responses with most tokens to come are candidates. */
const CANDIDATES = 8;

export interface Move {
  readonly job: Job;
  readonly from: Engine;
  readonly to: Engine;
}

/** Decides which running responses continue on which other engine, by the cost model of the engines. */
export class Rebalancer {
  readonly #engines: readonly Engine[];
  readonly #foresight: Foresight;
  readonly #leastGain: number;
  readonly #moves = new Map<Job, number>();
  /** Lengths of responses that have ended. */
  readonly #lengths: number[] = [];

  constructor(engines: readonly Engine[], { foresight, leastGain }: RebalanceOptions) {
    this.#engines = engines;
    this.#leastGain = leastGain;
    this.#foresight = foresight;
  }

  ended({ outputTokens }: Job): void {
    this.#lengths.push(outputTokens);
  }

  /** @returns null: no move ends the batch sooner */
  next(): Move | null {
    const engines = this.#engines.filter(({ isRunning }) => isRunning);
    if (engines.length < 2) return null;
    const loads = engines.map((engine) => ({ engine, sequences: engine.running.map((each) => this.#sequence(each)) }));
    const timed = loads.map((load) => ({ ...load, seconds: secondsToEnd(load.engine.options, load.sequences) }));
    const from = timed.reduce((a, b) => (b.seconds > a.seconds ? b : a));
    const to = timed.reduce((a, b) => (b.seconds < a.seconds ? b : a));
    // An engine with requests in its queue has work enough.
    if (from === to || to.engine.waitingCount > 0) return null;
    let best: Move | null = null;
    let bestSeconds = from.seconds * (1 - this.#leastGain);
    const candidates = from.sequences.toSorted((a, b) => b.left - a.left).slice(0, CANDIDATES);
    for (const candidate of candidates) {
      const { job, held, left } = candidate;
      const { options, usedTokens } = to.engine;
      if ((this.#moves.get(job) ?? 0) >= MAX_MOVES || usedTokens + held + left > options.kvTokens) continue;
      const others = from.sequences.filter((each) => each !== candidate);
      const after = prefillTime(options, held, 0) + secondsToEnd(options, [...to.sequences, candidate]);
      const seconds = Math.max(secondsToEnd(options, others), after);
      if (seconds >= bestSeconds) continue;
      bestSeconds = seconds;
      best = { job, from: from.engine, to: to.engine };
    }
    if (best !== null) this.#moves.set(best.job, (this.#moves.get(best.job) ?? 0) + 1);
    return best;
  }

  #sequence({ job, generated }: { readonly job: Job; readonly generated: number }): Sequence {
    const held = job.promptTokens + generated;
    if (this.#foresight === 'known') return { job, held, left: job.outputTokens - generated };
    const longer = this.#lengths.filter((length) => length > generated);
    const mean = longer.reduce((sum, length) => sum + length, 0) / longer.length;
    return { job, held, left: longer.length === 0 ? Math.max(1, generated / 4) : mean - generated };
  }
}

/** Until the last of the sequences has ended, if nothing else comes. */
function secondsToEnd(
  { stepSeconds, sequenceSeconds, kvTokenSeconds }: EngineOptions,
  sequences: readonly Sequence[],
): number {
  let seconds = 0;
  let steps = 0;
  let running = sequences.length;
  let held = sequences.reduce((sum, each) => sum + each.held, 0);
  for (const { left, held: own } of sequences.toSorted((a, b) => a.left - b.left)) {
    const more = left - steps;
    seconds += more * (stepSeconds + sequenceSeconds * running + kvTokenSeconds * (held + (running * more) / 2));
    steps = left;
    held += running * more - own - left;
    running -= 1;
  }
  return seconds;
}
