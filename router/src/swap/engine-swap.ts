import { setImmediate as turn } from 'node:timers/promises';
import { engines } from '../engines/engines.ts';
import {
  type CallResult,
  type WeightCall,
  type WeightCalls,
  type WeightStep,
  resultOf,
  weightCalls,
} from '../engines/weights.ts';
import { UNSET, identityOf } from '../engines/weight-label.ts';
import type { EngineLabel } from '../weights/engine-label.ts';
import type { EngineTable } from './engine-table.ts';
import type { SwapEngine } from './engine.ts';
import type { EngineRecord } from './ledger.ts';
import { loadCalls } from './load-calls.ts';
import { type SwapEffect, type SwapEvent, type SwapState, type Transition, next, planned } from './plan.ts';

/** Weights that an engine can load. */
export interface LoadableSnapshot {
  readonly identity: string;
  /** Where the engine finds them; '': it knows by itself; null: nowhere, a trainer sent them. */
  readonly path: string | null;
  /** For an adapter: the whole weights that it needs; null: not known. */
  readonly under: LoadableSnapshot | null;
}

export interface SwapOrder {
  readonly transition: Transition;
  /** Requests in flight end first in an async swap too; new ones wait. */
  readonly drains: boolean;
  readonly target: LoadableSnapshot;
  /** What the engine goes back to if it cannot load; null: it must not serve anything else. */
  readonly previous: LoadableSnapshot | null;
  readonly mover: SwapState['mover'];
  /** What the engine has now: if that is not known, it may not go on with it. */
  readonly weights: 'previous' | 'unknown';
  /** See `SwapState`. */
  readonly hasTarget: boolean;
  /** What the engine was before: what it says later shows whether it was restarted. */
  readonly was: Pick<EngineRecord, 'name' | 'start'>;
}

const RESTARTED: [CallResult, string] = ['died', 'the engine was restarted'];

/** An engine stops or resumes between two steps. */
const STEP_TIMEOUT_MS = 30_000;

/** The swap of one engine: runs the effects of the plan and passes their results to it. */
export class EngineSwap {
  readonly order: SwapOrder;
  state: SwapState;
  /** It ended because the engine is, or will be, another process. */
  hasDied = false;
  /** Resolves when the swap is over here, or goes on only to resume an engine that does not answer. */
  readonly over: Promise<void>;
  /** Resolves when the engine is paused for a trainer, or the swap is over. */
  readonly ready: Promise<void>;
  readonly #engine: SwapEngine;
  readonly #table: EngineTable;
  readonly #overNow = Promise.withResolvers<void>();
  readonly #readyNow = Promise.withResolvers<void>();
  #timer: NodeJS.Timeout | null = null;
  #cancelDrain: (() => void) | null = null;
  #isStopped = false;
  #isOver = false;
  /** `EngineWeights.breaks` at the begin. */
  #breaks = 0;
  /** The engine's label while its weights are replaced, else null. Kept here, because a worker that joins again gets a new label. */
  #label: EngineLabel | null = null;

  constructor(engine: SwapEngine, order: SwapOrder, table: EngineTable) {
    this.#engine = engine;
    this.#table = table;
    this.order = order;
    this.over = this.#overNow.promise;
    this.ready = Promise.race([this.#readyNow.promise, this.over]);
    const { drains, target, previous, ...given } = order;
    const transition = drains ? 'sync' : given.transition;
    const back = previous?.path == null ? null : previous.identity;
    this.state = planned({ ...given, transition, target: target.identity, previous: back }, performance.now());
  }

  /** The engine is not back in its usual state yet. */
  get isRunning(): boolean {
    return !this.#isStopped && this.state.stage !== 'done' && this.state.stage !== 'error';
  }

  /** It has begun, and is not over: see `over`. */
  get isAtWork(): boolean {
    return this.state.stage !== 'gate' && !this.#isOver;
  }

  /** It runs, and nothing says that the engine has become another process since the begin. */
  get isOfOneProcess(): boolean {
    return this.isRunning && this.#engine.breaks === this.#breaks;
  }

  begin(): void {
    this.#breaks = this.#engine.breaks;
    this.#step({ kind: 'began' });
  }

  undo(): void {
    this.#step({ kind: 'undo' });
  }

  moved(): void {
    this.#step({ kind: 'moved' });
  }

  /** The engine is another process now. */
  died(detail: string): void {
    this.#step({ kind: 'answered', result: 'died', detail });
  }

  /** Another swap takes the engine over, or the router ends. The gate stays as it is. */
  stop(): void {
    this.#isStopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#cancelDrain?.();
    this.#endUpdate(true);
    this.#end();
  }

  #end(): void {
    this.#isOver = true;
    this.#overNow.resolve();
  }

  #step(event: SwapEvent): void {
    if (this.#isStopped) return;
    const { stage } = this.state;
    const { state, effects } = next(this.state, event, performance.now());
    this.state = state;
    for (const effect of effects) this.#do(effect);
    if (state.stage !== stage) this.#table.staged(this.#engine, this);
  }

  #do(effect: SwapEffect): void {
    const engine = this.#engine;
    const table = this.#table;
    const { gate } = table.parts;
    const { transition, target, previous } = this.order;
    switch (effect.kind) {
      case 'close':
        gate.close(engine.url, transition === 'sync' ? 'refuse' : 'hold');
        break;
      case 'open':
        if (this.state.weights !== 'unknown') table.lifecycle.serve(engine);
        gate.open(engine.url);
        // Its question for the version must not delay the engine while requests wait.
        this.#endUpdate(true);
        break;
      case 'drain':
        this.#cancelDrain = table.idle.whenIdle(engine.ranks, () => this.#step({ kind: 'drained' }));
        break;
      case 'wait':
        this.#timer = setTimeout(() => this.#step({ kind: 'waited' }), effect.ms);
        break;
      case 'ready':
        this.#beginUpdate();
        engine.whole = null;
        this.#readyNow.resolve();
        break;
      case 'holds':
        if (this.order.mover === 'trainer' && effect.what === 'target') engine.whole = target.identity;
        table.holds(engine, effect.what === 'target' ? target : previous!);
        break;
      case 'quarantine':
        this.#endUpdate(true);
        this.hasDied = effect.hasDied;
        table.lost(engine, effect.hasDied);
        break;
      case 'over':
        this.#endUpdate(false);
        this.#end();
        break;
      case 'call':
        void this.#call(effect.step, effect.what === 'target' ? target : previous!);
        break;
    }
  }

  async #call(step: WeightStep, snapshot: LoadableSnapshot): Promise<void> {
    const engine = this.#engine;
    // It was restarted since it was asked what it is.
    if (engine.kind === null) {
      await engine.learn(STEP_TIMEOUT_MS).catch(() => {});
      if (!this.isRunning) return;
    }
    const { kind, url } = engine;
    const calls = kind === null ? null : weightCalls[kind];
    let result: CallResult = kind === null ? 'died' : 'refused';
    let detail = kind === null ? 'it does not answer' : `an engine of the kind ${kind} cannot replace its weights`;
    if (calls !== null) {
      if (step === 'load') this.#beginUpdate();
      const { identity, path } = snapshot;
      // New requests wait by now: those before are the ones whose process may not have been watched.
      if (step === 'pause') await engine.watchAtOnce();
      if (!this.isRunning) return;
      if (step === 'pause') [result, detail] = await this.#send(step, calls.pause(this.state.transition === 'sync'));
      else if (step === 'load' && path === null) detail = 'where the weights of the start are is not known';
      else if (step === 'load') [result, detail] = await this.#load(calls, snapshot);
      else if (step === 'resume') [result, detail] = await this.#resume(calls.resume, identity);
      else [result, detail] = await this.#setLabel(calls, identity);
      if (step === 'label') engine.isLabelled = result === 'ok';
    }
    this.#step({ kind: 'answered', result, detail: `${detail} (${url})` });
  }

  async #load(weights: WeightCalls, snapshot: LoadableSnapshot): Promise<[CallResult, string]> {
    const engine = this.#engine;
    const steps = await loadCalls(engine, weights, snapshot);
    if (steps === null) return ['refused', 'where the whole weights under the adapter are is not known'];
    const { calls, setsLabel, changesModels } = steps;
    let said: [CallResult, string] = ['ok', ''];
    let isFirst = true;
    for (const { whole, ...call } of calls) {
      said = await this.#send('load', call);
      if (whole !== null && said[0] !== 'refused') engine.whole = said[0] === 'ok' ? whole : null;
      // After the first call something has changed.
      if (said[0] === 'refused' && !isFirst) said[0] = 'failed';
      if (said[0] !== 'ok') break;
      isFirst = false;
    }
    if (changesModels) await this.#table.parts.watch.models.read([...engine.ranks]);
    const [result, detail] = said;
    if (result !== 'ok' || detail !== '' || !setsLabel) return said;
    const version = await this.#version();
    return version === null || version === snapshot.identity ? said : otherVersion(said, version, snapshot.identity);
  }

  async #setLabel(calls: WeightCalls, identity: string): Promise<[CallResult, string]> {
    const named = await this.#version();
    if (calls.labelsWithLoad && named === identity) return ['ok', ''];
    // The label must not come to a process that has not loaded these weights.
    const hadOther = this.order.hasTarget && identityOf(named, this.#engine.set.options.baseIdentity) !== identity;
    if (hadOther || ((await this.#isInDoubt()) && !(await this.#isSameProcess()))) return RESTARTED;
    const said = await this.#send('label', calls.label(identity));
    const version = await this.#version();
    // vLLM before 0.33 takes no label, and reports none.
    if (version === null || (version === UNSET && said[0] === 'refused')) return said;
    return version === identity ? ['ok', ''] : otherVersion(said, version, identity);
  }

  async #resume(call: WeightCall, identity: string): Promise<[CallResult, string]> {
    const [result, detail] = await this.#send('resume', call);
    if (result !== 'ok' || (this.state.failures === 0 && !(await this.#isInDoubt()))) return [result, detail];
    // An engine that was restarted meanwhile is not paused, and has other weights.
    const isSame = this.#engine.isLabelled ? (await this.#version()) === identity : await this.#isSameProcess();
    return isSame ? [result, detail] : RESTARTED;
  }

  /** Whether the engine may have become another process since the begin. */
  async #isInDoubt(): Promise<boolean> {
    // The end of a connection is read by then that came before the last answer.
    await turn();
    return this.#engine.breaks !== this.#breaks || this.#engine.watch?.isOpen !== true;
  }

  #isSameProcess(): Promise<boolean> {
    return this.#engine.isSameProcess(STEP_TIMEOUT_MS);
  }

  /** The weight version that the engine reports; null: none, or it was restarted since the last call, which has ended the swap. */
  async #version(): Promise<string | null> {
    const { kind, worker } = this.#engine;
    return kind === null ? null : engines[kind].readWeightVersion(worker.asker(STEP_TIMEOUT_MS));
  }

  /** @returns the result, and what the engine answered; '' if that was success without reservation */
  async #send(step: WeightStep, { path, json }: WeightCall): Promise<[CallResult, string]> {
    const { worker, url } = this.#engine;
    const timeoutMs = step === 'load' ? this.#table.parts.live.current.swapLoadTimeoutSecs * 1000 : STEP_TIMEOUT_MS;
    const end = this.#table.parts.watch.pauses.begin(url, path.split('?')[0]!);
    try {
      const reply = await worker.post(path, json, timeoutMs);
      const result = resultOf(step, reply);
      end(result === 'ok');
      const isPlain = result === 'ok' && reply.status < 300;
      return [result, isPlain ? '' : `${path} answered ${reply.status}: ${reply.text.slice(0, 300)}`];
    } catch (error) {
      end(false);
      const { code, message } = error as NodeJS.ErrnoException;
      return [code === 'ECONNREFUSED' ? 'died' : 'failed', `${path}: ${message}`];
    }
  }

  #beginUpdate(): void {
    if (this.#label !== null) return;
    this.#label = this.#table.parts.labels.of(this.#engine.worker);
    this.#label.updateBegan();
  }

  #endUpdate(isReal: boolean): void {
    this.#label?.updateEnded(isReal);
    this.#label = null;
  }
}

const otherVersion = ([, detail]: [CallResult, string], version: string, identity: string): [CallResult, string] => [
  'other_version',
  `${detail === '' ? '' : `${detail}; `}the engine reports the weight version "${version}", not "${identity}"`,
];
