import { prefillTime, type EngineOptions } from './engine-options.ts';
import type { Session, Trace } from './workload.ts';

/** Makespans in seconds that no policy can beat. */
export interface Bound {
  /** The larger of the two. */
  readonly seconds: number;
  /** The longest session, alone on an engine. */
  readonly longestSession: number;
  /** All work of the fleet, spread evenly. */
  readonly fleetWork: number;
}

/** The work of a trace. As many sequences as can run at once share a step's base time. */
class Work {
  readonly #engine: EngineOptions;
  readonly #seen = new Set<number>();
  #seconds = 0;
  #sharedByCount = 0;
  #sharedByMemory = 0;

  constructor(engine: EngineOptions) {
    this.#engine = engine;
  }

  get seconds(): number {
    return this.#seconds + Math.max(this.#sharedByCount, this.#sharedByMemory);
  }

  /** Adds the session's work; the prefix of an earlier session is free. @returns when it ends at best */
  add({ prefix, turns, startSeconds }: Session): number {
    const { stepSeconds, sequenceSeconds, kvTokenSeconds, maxSequences, kvTokens } = this.#engine;
    let context = 0;
    for (const segment of prefix) {
      if (!this.#seen.has(segment.id)) {
        this.#seen.add(segment.id);
        this.#seconds += prefillTime(this.#engine, segment.tokens, context);
      }
      context += segment.tokens;
    }
    const shared = context;
    let endsAt = startSeconds;
    for (const { promptTokens, outputTokens, delaySeconds } of turns) {
      const prefill = prefillTime(this.#engine, promptTokens - context, context);
      const meanContext = promptTokens + outputTokens / 2;
      const perToken = sequenceSeconds + kvTokenSeconds * meanContext;
      this.#seconds += prefill + outputTokens * perToken;
      this.#sharedByCount += (outputTokens * stepSeconds) / maxSequences;
      this.#sharedByMemory += (outputTokens * stepSeconds * (meanContext - shared)) / kvTokens;
      endsAt += prefill + outputTokens * (stepSeconds + perToken) + delaySeconds;
      context = promptTokens + outputTokens;
    }
    return endsAt - turns.at(-1)!.delaySeconds;
  }
}

/** Failures, pauses, and the prefill during which decoding sequences wait are free. */
export function bound(trace: Trace, engines: number, engine: EngineOptions): Bound {
  const work = new Work(engine);
  let longestSession = 0;
  for (const session of trace.sessions) longestSession = Math.max(longestSession, work.add(session));
  const fleetWork = work.seconds / engines;
  return { seconds: Math.max(longestSession, fleetWork), longestSession, fleetWork };
}
