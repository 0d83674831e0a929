import { prefillTime, type EngineOptions } from './engine-options.ts';
import { quantiles } from './quantiles.ts';
import type { Session, Stream, Trace } from './workload.ts';

/**
 * Turns per hour that no policy can beat that serves all sessions of a stream. Failures, pauses, and the prefill during
 * which decoding sequences wait are free.
 */
export interface StreamBound {
  /** All limits together. */
  readonly turnsPerHour: number;
  /** As many sequences decode at a time as sessions are open and not in a tool call. */
  readonly slots: number;
  /** As many decode at a time as fit into the memory beside the contexts that are kept during tool calls. */
  readonly memory: number;
  /** Longest session ÷ 95th percentile with engines that take no time: what the tool calls alone make of it. */
  readonly toolsMaxToP95: number;
}

/** Sessions of a stream from which its bound is computed. */
const sampled = 2000;

/** Sums over all turns; a shared prefix takes neither memory nor, after the first time, prefill. */
class Turns {
  count = 0;
  /** Seconds of prefill, and of decoding without the base time of steps. */
  seconds = 0;
  outputTokens = 0;
  /** Output tokens × context while they are generated. */
  outputContext = 0;
  delaySeconds = 0;
  /** How long each tool call is, tokens of the context meanwhile, seconds to compute that context again. */
  readonly #calls: { readonly delay: number; readonly context: number; readonly again: number }[] = [];
  readonly #engine: EngineOptions;
  readonly #seen = new Set<number>();

  constructor(sessions: readonly Session[], engine: EngineOptions) {
    this.#engine = engine;
    for (const session of sessions) this.#add(session);
    this.#calls.sort((a, b) => a.delay - b.delay);
  }

  /**
   * Contexts are kept in the shortest tool calls and computed again after the others, for several shares of the calls:
   * token seconds of what is kept, and seconds of all work.
   */
  choices(): { readonly kept: number; readonly seconds: number }[] {
    let kept = 0;
    let seconds = this.#calls.reduce((sum, { again }) => sum + again, this.seconds);
    const choices = [{ kept, seconds }];
    const step = Math.ceil(this.#calls.length / 40);
    for (const [i, { delay, context, again }] of this.#calls.entries()) {
      kept += delay * context;
      seconds -= again;
      if ((i + 1) % step === 0 || i + 1 === this.#calls.length) choices.push({ kept, seconds });
    }
    return choices;
  }

  #add({ prefix, turns }: Session): void {
    const engine = this.#engine;
    let context = 0;
    for (const segment of prefix) {
      if (!this.#seen.has(segment.id)) this.seconds += prefillTime(engine, segment.tokens, context);
      this.#seen.add(segment.id);
      context += segment.tokens;
    }
    const shared = context;
    for (const turn of turns) {
      const { promptTokens, outputTokens, delaySeconds } = turn;
      const meanContext = promptTokens + outputTokens / 2;
      this.seconds += prefillTime(engine, promptTokens - context, context);
      this.seconds += outputTokens * (engine.sequenceSeconds + engine.kvTokenSeconds * meanContext);
      this.outputTokens += outputTokens;
      this.outputContext += outputTokens * (meanContext - shared);
      context = promptTokens + outputTokens;
      this.count += 1;
      if (turn === turns.at(-1)) continue;
      this.delaySeconds += delaySeconds;
      const again = prefillTime(engine, context - shared, shared);
      this.#calls.push({ delay: delaySeconds, context: context - shared, again });
    }
  }
}

export function streamBound({ sessions, stream }: Trace, engines: number, engine: EngineOptions): StreamBound {
  const later = laterSessions(sessions, stream!);
  const turns = new Turns(later, engine);
  const { count, outputTokens } = turns;
  const bySlots = (rate: number): number => stream!.slots / engines - (rate * turns.delaySeconds) / count;
  const meanContext = turns.outputContext / outputTokens;
  const choices = turns.choices();
  const byMemory = (rate: number, kept: number): number => (engine.kvTokens - rate * kept) / meanContext;
  const best = (room: (rate: number, keptTokenSeconds: number) => number): number => {
    const rates = choices.map(({ kept, seconds }) =>
      highestRate((rate) => {
        const decoding = Math.min(engine.maxSequences, room(rate, kept / count));
        if (decoding <= 0) return Infinity;
        return (rate * (seconds + (outputTokens * engine.stepSeconds) / decoding)) / count;
      }),
    );
    return 3600 * engines * Math.max(...rates);
  };
  const tools = quantiles(later.map(toolSecondsOf));
  return {
    turnsPerHour: best((rate, kept) => Math.min(bySlots(rate), byMemory(rate, kept))),
    slots: best(bySlots),
    memory: best(byMemory),
    toolsMaxToP95: tools.max / tools.p95,
  };
}

/** Seconds of all tool calls of a session. */
function toolSecondsOf({ turns }: Session): number {
  return turns.slice(0, -1).reduce((sum, { delaySeconds }) => sum + delaySeconds, 0);
}

/** @param busy share of an engine's time that turns at this rate take; rises with the rate */
function highestRate(busy: (rate: number) => number): number {
  let low = 0;
  let high = 1000;
  for (let i = 0; i < 50; i++) {
    const middle = (low + high) / 2;
    if (busy(middle) < 1) low = middle;
    else high = middle;
  }
  return low;
}

/** The first sessions of a stream that are not cut. */
function laterSessions(first: readonly Session[], stream: Stream): Session[] {
  const clients = stream.clients();
  const open = [...first];
  const begun: Session[] = [];
  for (let i = 0; begun.length < sampled; i++) {
    const next = clients.ended(open[i]!);
    open.push(...next);
    begun.push(...next);
  }
  return begun;
}
