/**
 * Continuous batching as a state machine without clock or I/O. Each `step` runs one engine step: running sequences
 * first, then waiting ones in order of arrival while budget, seats and KV memory last. Long prompts are prefilled in
 * chunks. When KV runs out, the latest arrival frees its blocks and is computed again later (recompute preemption). The
 * caller decides what a step's duration means: a wall clock sleeps, a virtual clock adds it.
 */

import { KvCache } from './kv-cache.ts';
import type { SimOptions } from '../sim-options.ts';
import { contextOf, readToken, type Sampler } from './sampler.ts';
import { finishOf, type Sequence } from './sequence.ts';
import { StepCost } from './step-cost.ts';

export interface Step {
  durationMs: number;
  /** Sequences that got a token or ended in this step, visible when the step is over. */
  progressed: Sequence[];
}

/** Free share of the KV memory that an admission leaves for the growth of running sequences (vLLM's watermark). */
const watermark = 0.01;

export class Scheduler {
  readonly cache: KvCache;
  readonly running: Sequence[] = [];
  readonly waiting: Sequence[] = [];
  /** Arrivals during a drain, which does not wait for them. */
  readonly held: Sequence[] = [];
  /** Sequences that wait for `wake`, as their scripts say. They keep their KV. */
  readonly resting: Sequence[] = [];
  mode: 'run' | 'drain' | 'hold' = 'run';
  sampler: Sampler;
  weightVersion: string;

  promptTokens = 0;
  cachedTokens = 0;
  generatedTokens = 0;
  preemptions = 0;

  readonly #options: SimOptions;
  readonly #reserve: number;

  constructor(options: SimOptions, sampler: Sampler) {
    this.#options = options;
    this.sampler = sampler;
    this.weightVersion = options.weightVersion;
    this.cache = new KvCache(Math.floor(options.kvTokens / options.blockTokens));
    this.#reserve = Math.floor(this.cache.blockCount * watermark);
  }

  /** The most tokens of a sequence: one that exceeds the KV memory could never run. */
  get maxSequenceTokens(): number {
    // The last generated token is never read, so it needs no KV.
    return Math.min(this.#options.maxModelTokens, this.cache.blockCount * this.#options.blockTokens + 1);
  }

  get isIdle(): boolean {
    return this.running.length === 0 && this.waiting.length === 0;
  }

  submit(sequence: Sequence, nowMs: number): void {
    sequence.arrivedMs = nowMs;
    (this.mode === 'run' ? this.waiting : this.held).push(sequence);
  }

  isWaiting(sequence: Sequence): boolean {
    return this.waiting.includes(sequence) || this.held.includes(sequence);
  }

  /** Removes a sequence and frees its blocks at once. */
  remove(sequence: Sequence): void {
    for (const list of [this.running, this.waiting, this.held, this.resting]) {
      const at = list.indexOf(sequence);
      if (at >= 0) list.splice(at, 1);
    }
    this.#freeBlocks(sequence);
  }

  /** A sequence that is not held yet will not be held. */
  wake(sequence: Sequence): void {
    if (sequence.script !== null) sequence.script = { ...sequence.script, holdAt: 0 };
    const at = this.resting.indexOf(sequence);
    if (at >= 0) this.running.push(...this.resting.splice(at, 1));
  }

  resume(): void {
    this.mode = 'run';
    this.waiting.push(...this.held.splice(0));
  }

  /** Frees the KV of all running sequences, which are computed again later. */
  retractAll(): void {
    for (let last = this.running.pop(); last; last = this.running.pop()) this.#preempt(last);
  }

  step(nowMs: number): Step | null {
    if (this.mode === 'hold' || this.isIdle) return null;
    const cost = new StepCost(this.#options);
    const scheduled: Sequence[] = [];
    const preemptionsBefore = this.preemptions;
    let budget = this.#options.maxStepTokens;

    for (let i = 0; i < this.running.length && budget > 0; i += 1) {
      const sequence = this.running[i]!;
      const tokens = Math.min(sequence.length - sequence.computed, budget);
      if (!this.#grow(sequence, sequence.computed + tokens)) break; // it gave way itself, and it was the last
      budget -= tokens;
      this.#compute(sequence, tokens, cost);
      scheduled.push(sequence);
    }

    // A sequence that just lost its memory would only take it back from the others.
    if (this.preemptions === preemptionsBefore) {
      while (this.waiting.length > 0 && budget > 0 && this.running.length < this.#options.maxRunning) {
        const sequence = this.waiting[0]!;
        if (!this.#admit(sequence)) break;
        this.waiting.shift();
        this.running.push(sequence);
        const tokens = Math.min(sequence.length - sequence.computed, budget);
        budget -= tokens;
        this.#compute(sequence, tokens, cost);
        scheduled.push(sequence);
      }
    }

    const progressed = scheduled.filter((sequence) => sequence.computed === sequence.length);
    const endMs = nowMs + cost.ms;
    for (const sequence of progressed) this.#generate(sequence, endMs);
    return { durationMs: cost.ms, progressed };
  }

  /** Makes room for `tokens` of KV by preempting later arrivals. False: the sequence itself was preempted. */
  #grow(sequence: Sequence, tokens: number): boolean {
    const needed = Math.ceil(tokens / this.#options.blockTokens);
    while (sequence.blocks.length < needed) {
      const block = this.cache.allocate();
      if (block !== undefined) {
        sequence.blocks.push(block);
        continue;
      }
      const last = this.running.pop()!;
      this.#preempt(last);
      if (last === sequence) return false;
    }
    return true;
  }

  /** Holds the cached prefix and allocates the rest, or changes nothing. */
  #admit(sequence: Sequence): boolean {
    const { blockTokens } = this.#options;
    const total = sequence.length;
    // At least one token must be computed: the cache has KV, not the next token.
    const limit = Math.floor((total - 1) / blockTokens);
    const cached = this.cache.match(sequence.blockKeys(limit, blockTokens), limit);
    const needed = Math.ceil(total / blockTokens) - cached.length;
    const free = this.cache.freeCount - this.cache.countFree(cached);
    if (needed > free - (this.running.length > 0 ? this.#reserve : 0)) return false;
    this.cache.hold(cached);
    sequence.blocks = cached;
    for (let i = 0; i < needed; i += 1) sequence.blocks.push(this.cache.allocate()!);
    sequence.published = sequence.blocks.length - needed;
    sequence.computed = sequence.published * blockTokens;
    if (sequence.cachedTokens < 0) {
      sequence.cachedTokens = sequence.computed;
      this.promptTokens += sequence.prompt.length;
      this.cachedTokens += sequence.computed;
    }
    return true;
  }

  #compute(sequence: Sequence, tokens: number, cost: StepCost): void {
    if (tokens === 1 && sequence.output.length > 0) cost.decode(sequence.length);
    else cost.prefill(sequence.computed, tokens);
    sequence.computed += tokens;
    const { blockTokens } = this.#options;
    const full = Math.floor(sequence.computed / blockTokens);
    if (sequence.published === full) return;
    const keys = sequence.blockKeys(full, blockTokens);
    for (; sequence.published < full; sequence.published += 1) {
      this.cache.publish(sequence.blocks[sequence.published]!, keys[sequence.published]!);
    }
  }

  #generate(sequence: Sequence, endMs: number): void {
    if (sequence.output.length === 0) {
      sequence.context = contextOf(sequence.prompt);
      sequence.firstTokenMs = endMs;
    }
    const { sampling } = sequence;
    if (sampling.maxTokens === 0) {
      // Only the prompt's logprobs were requested.
      sequence.finish = { type: 'length' };
      this.remove(sequence);
      return;
    }
    const sampler = sequence.sampler ?? this.sampler;
    const view = sampler.view(sequence.context);
    const mayEnd = !sampling.ignoreEos && sequence.output.length + 1 >= sampling.minTokens;
    const id = sequence.script?.ids[sequence.output.length] ?? sampler.choose(view, sampling, mayEnd);
    sequence.append(id, view, this.weightVersion);
    sequence.context = readToken(sequence.context, id);
    this.generatedTokens += 1;
    sequence.finish = finishOf(sequence);
    if (sequence.finish) this.remove(sequence);
    else if (sequence.script?.holdAt === sequence.output.length) {
      this.running.splice(this.running.indexOf(sequence), 1);
      this.resting.push(sequence);
    }
  }

  #preempt(sequence: Sequence): void {
    this.#freeBlocks(sequence);
    sequence.preemptions += 1;
    this.preemptions += 1;
    this.waiting.unshift(sequence);
  }

  #freeBlocks(sequence: Sequence): void {
    this.cache.release(sequence.blocks);
    sequence.blocks = [];
    sequence.computed = 0;
    sequence.published = 0;
  }
}
