import { prefillTime } from '../engine-options.ts';
import { IndexedPolicy } from '../peers/router-view.ts';
import type { PolicyHost } from '../policy.ts';
import type { Request, Session } from '../workload.ts';

/** Seconds charged for an overflow as large as an engine's whole memory. */
const overflowSeconds = 20;
/** Weight of keeping the samples of a group apart. */
const apartWeight = 0.3;
/** Seconds charged for an engine that is paused, and for a whole batch more than it can run. */
const pausedSeconds = 3;
const crowdedSeconds = 5;
/** Answers that the mean output length looks back on. */
const memory = 200;

/**
 * Lowest cost in time: the prefill queued before the request, its own prefill and decode, and the delay it puts on all
 * others there. Stickiness is no rule of it: a cached prefix is just cheap.
 */
export class Social extends IndexedPolicy {
  /** When the prefill sent to each engine will be through, in seconds. */
  protected readonly prefillEnd: number[] = this.inflight.map(() => 0);
  protected readonly live: Map<number, Request>[] = this.inflight.map(() => new Map<number, Request>());
  readonly #kv: number[] = this.inflight.map(() => 0);
  readonly #placedByGroup = new Map<string, number[]>();
  readonly #expected = new Map<number, number>();
  #answers = 5;
  #answerTokens = 5 * 600;

  /** Learns from a batch that ran before. */
  remember(sessions: readonly Session[]): void {
    const outputs = sessions.flatMap(({ turns }) => turns.map((turn) => turn.outputTokens));
    this.#answers = 100;
    this.#answerTokens = (100 * outputs.reduce((sum, tokens) => sum + tokens, 0)) / outputs.length;
  }

  route(request: Request): number | null {
    return this.cheapest(request).engine;
  }

  override sent(request: Request, engine: number): void {
    super.sent(request, engine);
    const { now, engineOptions } = this.host;
    const uncached = this.uncached(request, engine);
    const expected = this.expectedOutput(request);
    this.#expected.set(request.id, expected);
    if (request.turn === 0) this.#placed(request.groupId)[engine]! += 1;
    const prefill = prefillTime(engineOptions, uncached, request.promptTokens - uncached);
    this.prefillEnd[engine] = Math.max(this.prefillEnd[engine]!, now) + prefill;
    this.#kv[engine]! += request.promptTokens + expected / 2;
    this.live[engine]!.set(request.id, request);
    this.learn(request.segments, engine);
  }

  override finished(request: Request, engine: number): void {
    super.finished(request, engine);
    this.#kv[engine]! -= request.promptTokens + this.#expected.get(request.id)! / 2;
    this.#expected.delete(request.id);
    this.live[engine]!.delete(request.id);
    this.learn(request.answered, engine);
    this.#answers = Math.min(this.#answers + 1, memory);
    const forgotten = this.#answers >= memory ? this.#answerTokens / this.#answers : 0;
    this.#answerTokens += request.outputTokens - forgotten;
  }

  override down(engine: number, lost: readonly Request[]): void {
    super.down(engine, lost);
    this.prefillEnd[engine] = 0;
    this.#kv[engine] = 0;
    this.live[engine]!.clear();
  }

  override swapped(engine: number): void {
    super.swapped(engine);
    this.forget(engine);
    for (const request of this.live[engine]!.values()) this.index[engine]!.insert(request.segments, this.host.now);
  }

  protected get meanOutput(): number {
    return this.#answerTokens / this.#answers;
  }

  protected expectedOutput(_request: Request): number {
    return this.meanOutput;
  }

  protected uncached(request: Request, engine: number): number {
    return request.promptTokens - Math.min(this.matched(request, engine), request.promptTokens - 1);
  }

  protected cheapest(request: Request): { engine: number; seconds: number } {
    let best = { engine: this.alive[0]!, seconds: Infinity, uncached: Infinity };
    for (const engine of this.alive) {
      const cost = this.cost(request, engine);
      if (cost.seconds < best.seconds || (cost.seconds === best.seconds && cost.uncached < best.uncached)) {
        best = { engine, ...cost };
      }
    }
    return best;
  }

  protected cost(request: Request, engine: number): { seconds: number; uncached: number } {
    const { engineOptions, now } = this.host;
    const { stepSeconds, sequenceSeconds, kvTokenSeconds, kvTokens, maxSequences } = engineOptions;
    const { promptTokens } = request;
    const output = this.expectedOutput(request);
    const uncached = this.uncached(request, engine);
    const others = this.inflight[engine]!;
    const kv = this.#kv[engine]!;
    const prefill = prefillTime(engineOptions, uncached, promptTokens - uncached);
    const context = promptTokens + output / 2;
    const decodeShare = output * (sequenceSeconds + kvTokenSeconds * context);
    let seconds = Math.max(0, this.prefillEnd[engine]! - now) + prefill;
    seconds += output * (stepSeconds + sequenceSeconds * (others + 1) + kvTokenSeconds * (kv + context));
    seconds += others * (prefill + decodeShare);
    if (request.turn === 0) {
      const weight = apartWeight * Math.min(1, output / promptTokens) * this.#placed(request.groupId)[engine]!;
      seconds += weight * (decodeShare + (output * stepSeconds) / 64) * (1 + others);
    }
    const overflow = kv + promptTokens + output - 0.95 * kvTokens;
    if (overflow > 0) seconds += (overflowSeconds * overflow) / kvTokens;
    if (others >= maxSequences) seconds += (crowdedSeconds * (others - maxSequences + 1)) / maxSequences;
    if (this.isPaused[engine]) seconds += pausedSeconds;
    return { seconds, uncached };
  }

  #placed(groupId: string): number[] {
    let placed = this.#placedByGroup.get(groupId);
    if (placed === undefined) {
      placed = this.inflight.map(() => 0);
      this.#placedByGroup.set(groupId, placed);
    }
    return placed;
  }
}

/** Makes a policy remember the batch before. */
export function warmed<T extends Social>(policy: T, host: PolicyHost): T {
  policy.remember(host.earlierBatch().sessions);
  return policy;
}
