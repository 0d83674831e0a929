/** The engine behind the APIs: takes jobs, makes tokens, and executes controls (abort, pause, flush, new weights). */

import { appendFileSync } from 'node:fs';
import { Faults } from '../api/faults.ts';
import { Driver } from './driver.ts';
import { mix } from './mix.ts';
import type { SimOptions } from '../sim-options.ts';
import { Sampler } from './sampler.ts';
import { Scheduler } from './scheduler.ts';
import type { Finish, FinishedRecord, Sequence } from './sequence.ts';

/** Receives a job's tokens. */
export interface Sink {
  /** A token was added. */
  progressed(sequence: Sequence): void;
  /** The last call for this sequence; `sequence.finish` has the reason. */
  ended(sequence: Sequence): void;
}

/** The sequences of one request. */
export interface Job {
  id: string;
  sequences: readonly Sequence[];
  /** `X-Session-ID` of the request. */
  session?: string;
}

export interface SimStats {
  requests: number;
  running: number;
  waiting: number;
  promptTokens: number;
  cachedTokens: number;
  generatedTokens: number;
  aborted: number;
  preemptions: number;
  kvTokensUsed: number;
  kvTokensTotal: number;
  finished: number;
  paused: boolean;
  weightVersion: string;
  /** CPU time of the whole process so far in ms, to measure the cost of the simulation. */
  processCpuMs: number;
}

export class Core {
  readonly options: SimOptions;
  readonly scheduler: Scheduler;
  modelPath: string;
  /** What the engine lists its model as. */
  servedName: string;
  /** Names that requests may use: the model and its LoRA adapters (name -> path). */
  readonly modelNames = new Map<string, string>();
  paused = false;
  /** vLLM: between /sleep and /wake_up. */
  isAsleep = false;
  requests = 0;
  aborted = 0;
  readonly faults = new Faults();
  /** Unix seconds, as `process_start_time_seconds`. */
  readonly startedAt = (performance.timeOrigin + performance.now()) / 1000;
  readonly finished = { stop: 0, length: 0, abort: 0 };

  readonly #driver: Driver;
  readonly #open = new Map<Sequence, { job: Job; sink: Sink }>();
  #drained: (() => void)[] = [];
  /** Called when a sequence has ended. */
  #afterClose: (() => void)[] = [];
  #unseeded = 0;

  constructor(options: SimOptions) {
    this.options = options;
    this.modelPath = options.modelPath;
    this.servedName = options.model;
    this.modelNames.set(options.model, options.modelPath);
    this.scheduler = new Scheduler(options, this.#samplerOf(options.modelPath));
    this.#driver = new Driver(this.scheduler, options.timeScale, (progressed) => this.#deliver(progressed));
  }

  get weightVersion(): string {
    return this.scheduler.weightVersion;
  }

  get running(): number {
    return this.scheduler.running.length + this.scheduler.resting.length;
  }

  get waiting(): number {
    return this.scheduler.waiting.length + this.scheduler.held.length;
  }

  get kvTokensUsed(): number {
    const { cache } = this.scheduler;
    return (cache.blockCount - cache.freeCount) * this.options.blockTokens;
  }

  /** What real engines report as used: they allocate KV for a prompt as they read it, this scheduler at once. */
  get kvTokensRead(): number {
    const { blockTokens } = this.options;
    const ahead = this.scheduler.running.reduce(
      (sum, { blocks, computed }) => sum + blocks.length - Math.ceil(computed / blockTokens),
      0,
    );
    return this.kvTokensUsed - ahead * blockTokens;
  }

  get kvTokensTotal(): number {
    return this.scheduler.cache.blockCount * this.options.blockTokens;
  }

  start(job: Job, sink: Sink): void {
    this.requests += 1;
    const nowMs = performance.now();
    for (const [index, sequence] of job.sequences.entries()) {
      this.#open.set(sequence, { job, sink });
      sequence.script = this.options.script?.(job.id, index) ?? null;
      if (this.options.disaggregationMode === 'prefill') sequence.sampling.maxTokens = 1;
      sequence.isOfVllm = this.options.kind === 'vllm';
      sequence.streamInterval = this.options.streamInterval;
      sequence.batchNoise = this.options.logprobNoise;
      sequence.batchSeed = mix(this.options.seed, this.requests) ^ index;
      this.scheduler.submit(sequence, nowMs);
    }
    this.#driver.kick();
  }

  /** The seed of a request without one: always equal, or a new one each time with `variedSampling`. */
  nextUnseeded(): number {
    if (this.options.variedSampling) this.#unseeded += 1;
    return this.#unseeded;
  }

  /** The client has disconnected: its sequences are removed without a call to the sink. */
  abandon(job: Job): void {
    for (const sequence of job.sequences) this.#abort(sequence, false);
  }

  /** Ends the sequences that match, each with the tokens it has. Returns their number. */
  abort(matches: (job: Job, sequence: Sequence) => boolean): number {
    let count = 0;
    for (const [sequence, { job }] of this.#open) {
      if (matches(job, sequence) && this.#abort(sequence, true)) count += 1;
    }
    return count;
  }

  /** Continues sequences that their scripts hold. */
  release(matches: (job: Job) => boolean): void {
    for (const [sequence, { job }] of this.#open) if (matches(job)) this.scheduler.wake(sequence);
    this.#driver.kick();
  }

  /** Records of the sequences that have not ended, for an engine that is killed. */
  unfinished(): FinishedRecord[] {
    const finish: Finish = { type: 'abort', message: 'not finished' };
    return Array.from(this.#open, ([sequence, { job }]) => this.#recordOf(sequence, job, finish));
  }

  /** `keep` freezes running sequences, `retract` also frees their KV, `abort` ends them, `wait` lets them finish. */
  async pause(mode: 'keep' | 'retract' | 'abort' | 'wait'): Promise<void> {
    this.paused = true;
    if (mode === 'abort') this.abort(() => true);
    if (mode === 'wait') await this.#drain();
    // Resumed in the meantime.
    if (!this.paused) return;
    this.scheduler.mode = 'hold';
    if (mode === 'retract') this.scheduler.retractAll();
  }

  resume(): void {
    this.paused = false;
    this.scheduler.resume();
    this.#driver.kick();
  }

  /** Empties the prefix cache; running sequences lose their KV and are computed again. */
  clearCache(): void {
    this.scheduler.retractAll();
    this.scheduler.cache.flush();
  }

  /** Empties the prefix cache, unless running sequences hold KV (returns false). */
  flushCache(): boolean {
    if (this.running > 0) return false;
    this.scheduler.cache.flush();
    return true;
  }

  /**
   * Replaces the weights. Unless paused, the engine first finishes its work and holds new work, as SGLang does under
   * its model update lock. The version label changes only if one is given.
   */
  async loadWeights(path: string, version: string | undefined): Promise<void> {
    if (!this.paused) await this.#drain();
    this.scheduler.mode = 'hold';
    // A paused engine finishes the step that runs. Its GPU loads after it.
    await this.#driver.delivered();
    const ms = this.options.weightLoadMs * this.options.timeScale;
    if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
    this.modelPath = path;
    this.scheduler.sampler = this.#samplerOf(path);
    if (version !== undefined) this.scheduler.weightVersion = version;
    if (!this.paused) this.resume();
  }

  /** Resolves when no sequence uses the adapter. */
  whenUnused(adapter: string): Promise<void> {
    return new Promise((resolve) => {
      const look = (): void => {
        if ([...this.#open.keys()].some((sequence) => sequence.adapter === adapter)) this.#afterClose.push(look);
        else resolve();
      };
      look();
    });
  }

  /** null: an adapter of this name is not loaded. */
  adapterSampler(name: string): Sampler | null {
    const path = this.modelNames.get(name);
    return path === undefined ? null : this.#samplerOf(`${this.modelPath} with ${path}`);
  }

  stats(): SimStats {
    const { scheduler } = this;
    const cpu = process.cpuUsage();
    return {
      requests: this.requests,
      running: this.running,
      waiting: this.waiting,
      promptTokens: scheduler.promptTokens,
      cachedTokens: scheduler.cachedTokens,
      generatedTokens: scheduler.generatedTokens,
      aborted: this.aborted,
      preemptions: scheduler.preemptions,
      kvTokensUsed: this.kvTokensUsed,
      kvTokensTotal: this.kvTokensTotal,
      finished: this.finished.stop + this.finished.length,
      paused: this.paused,
      weightVersion: this.weightVersion,
      processCpuMs: cpu.user / 1000 + cpu.system / 1000,
    };
  }

  stop(): void {
    this.#driver.stop();
  }

  #deliver(progressed: readonly Sequence[]): void {
    for (const sequence of progressed) {
      const open = this.#open.get(sequence);
      if (!open) continue; // aborted while its step was running
      if (sequence.finish) this.#close(sequence, open, sequence.finish, true);
      else {
        open.sink.progressed(sequence);
        if (sequence.script?.holdAt === sequence.output.length) sequence.script.onHeld?.();
      }
    }
    if (this.#drained.length > 0 && this.#isDrained()) this.#drainEnds();
  }

  #abort(sequence: Sequence, tellSink: boolean): boolean {
    const open = this.#open.get(sequence);
    if (!open) return false;
    sequence.finish = this.#abortOf(sequence);
    this.scheduler.remove(sequence);
    this.aborted += 1;
    this.#close(sequence, open, sequence.finish, tellSink);
    if (this.#drained.length > 0 && this.#isDrained()) this.#drainEnds();
    return true;
  }

  /** SGLang (0.5.23) has another message for requests in its queue. */
  #abortOf(sequence: Sequence): Finish {
    const isQueued = this.options.kind === 'sglang' && this.scheduler.isWaiting(sequence);
    return isQueued
      ? { type: 'abort', message: 'Abort in waiting queue', wasWaiting: true }
      : { type: 'abort', message: 'Aborted' };
  }

  #close(sequence: Sequence, open: { job: Job; sink: Sink }, finish: Finish, tellSink: boolean): void {
    this.#open.delete(sequence);
    this.finished[finish.type] += 1;
    if (this.options.onFinished || this.options.logPath !== undefined) this.#log(sequence, open.job, finish);
    if (tellSink) open.sink.ended(sequence);
    for (const look of this.#afterClose.splice(0)) look();
  }

  #log(sequence: Sequence, job: Job, finish: Finish): void {
    const record = this.#recordOf(sequence, job, finish);
    this.options.onFinished?.(record);
    if (this.options.logPath !== undefined) appendFileSync(this.options.logPath, `${JSON.stringify(record)}\n`);
  }

  #recordOf(sequence: Sequence, job: Job, finish: Finish): FinishedRecord {
    return {
      id: sequence.id,
      requestId: job.id,
      session: job.session ?? null,
      inputIds: [...sequence.prompt],
      namespace: sequence.namespace,
      outputIds: [...sequence.output],
      logprobs: sequence.output.map((_, i) => sequence.logprobAt(i, this.scheduler.sampler)),
      finish,
      cachedTokens: Math.max(0, sequence.cachedTokens),
      preemptions: sequence.preemptions,
      weightVersions: sequence.spans.map((span) => ({ ...span })),
      arrivedMs: sequence.arrivedMs,
      firstTokenMs: sequence.firstTokenMs,
      finishedMs: performance.now(),
    };
  }

  /** Resolves when everything that had arrived has ended; arrivals from now on are held. */
  #drain(): Promise<void> {
    this.scheduler.mode = 'drain';
    if (this.#isDrained()) return Promise.resolve();
    this.#driver.kick();
    return new Promise((resolve) => this.#drained.push(resolve));
  }

  #isDrained(): boolean {
    return this.#open.size === this.scheduler.held.length;
  }

  #drainEnds(): void {
    const waiters = this.#drained;
    this.#drained = [];
    for (const resolve of waiters) resolve();
  }

  #samplerOf(weights: string): Sampler {
    const { seed, meanOutputTokens, retokenizationDrift } = this.options;
    return new Sampler(seed, meanOutputTokens, retokenizationDrift, weights);
  }
}
