import { setTimeout as delay, setImmediate as turn } from 'node:timers/promises';
import { askJson } from '../engines/ask.ts';
import { engines } from '../engines/engines.ts';
import { identityOf } from '../engines/weight-label.ts';
import { weightCalls } from '../engines/weights.ts';
import type { WeightJudge } from '../weights/version-labels.ts';
import type { Worker } from '../fleet/worker.ts';
import type { EngineSwap } from './engine-swap.ts';
import type { BeforeUpdate, EngineTable, EngineTableParts } from './engine-table.ts';
import type { SwapEngine } from './engine.ts';
import type { LedgerEntry } from './ledger.ts';
import { ProcessWatch } from './process-watch.ts';

/** An engine that does not answer is asked again after this time, doubled each time up to the maximum. */
const ASK_MS = 250;
const MAX_ASK_MS = 5_000;
/** How often an engine that has a name for its weights, and does not say it, is asked for it again: a busy one may exceed the time. */
const MORE_ASKS = 3;
/** The same for an engine that could not load the snapshot of the fleet. */
const LOAD_MS = 5_000;
const MAX_LOAD_MS = 300_000;
/** How often an engine that was found paused is asked whether it still is, and how often is looked whether the next router has ended. */
const LOOK_MS = 1_000;

/** An engine is being brought to the snapshot of the fleet. */
interface Job {
  readonly ender: AbortController;
  /** Ends the wait before the next try to load. */
  retry: AbortController;
}

/**
 * Brings engines that join, were restarted, or have unknown weights to the snapshot of the fleet. They get requests only after that:
 * registered → warming → serving, or quarantined.
 */
export class Lifecycle implements WeightJudge {
  readonly #table: EngineTable;
  readonly #parts: EngineTableParts;
  readonly #jobs = new Map<SwapEngine, Job>();
  readonly #watched = new Set<SwapEngine>();

  constructor(table: EngineTable) {
    this.#table = table;
    this.#parts = table.parts;
  }

  /** The engine's weights are not known to the router. @param hasDied not because it could not load them */
  bring(engine: SwapEngine, phase: 'registered' | 'quarantined', hasDied = false): void {
    engine.phase = phase;
    this.keepOut(engine);
    if (this.#jobs.has(engine) || this.#table.isClosed) return;
    const job: Job = { ender: new AbortController(), retry: new AbortController() };
    this.#jobs.set(engine, job);
    void this.#bring(engine, job, phase === 'quarantined' && !hasDied)
      .catch((error: unknown) => {
        if (!job.ender.signal.aborted)
          this.#parts.log.error({ worker: engine.url, err: error }, 'engine not brought in');
      })
      .finally(() => {
        if (this.#jobs.get(engine) === job) this.#jobs.delete(engine);
      });
  }

  /** The engine has left. */
  end(engine: SwapEngine): void {
    this.#jobs.get(engine)?.ender.abort();
    this.#jobs.delete(engine);
    engine.watch?.close();
    this.#watched.delete(engine);
  }

  close(): void {
    for (const engine of [...this.#jobs.keys(), ...this.#watched]) this.end(engine);
  }

  keepOut(engine: SwapEngine): void {
    for (const worker of engine.ranks) {
      this.#parts.fleet.setJoining(worker, engine.phase !== 'quarantined');
      this.#parts.fleet.setReason(worker, 'version', true);
    }
  }

  /** The engine has known weights and is not paused. */
  serve(engine: SwapEngine): void {
    engine.phase = 'serving';
    engine.pausedBecause = null;
    for (const worker of engine.ranks) {
      this.#parts.watch.health.resumed(worker);
      this.#parts.fleet.setReason(worker, 'version', false);
      this.#parts.fleet.setReason(worker, 'paused', false);
      this.#parts.fleet.setJoining(worker, false);
    }
  }

  /** A trainer has replaced all weights of a quarantined engine. */
  readmit(engine: SwapEngine): void {
    engine.error = null;
    engine.isDoubted = false;
    this.serve(engine);
  }

  restarted(worker: Worker): void {
    const engine = this.#table.find(worker);
    if (engine === undefined) return;
    // That the process of before could not load says nothing.
    this.#jobs.get(engine)?.retry.abort();
    // Its process was watched from before its weights became known, or since before it is being brought in, or since its swap began.
    const isKnown = this.#jobs.has(engine) || engine.swap?.isOfOneProcess === true || (engine.isSure && !engine.isBusy);
    if (isKnown && engine.watch?.isOpen === true) return;
    this.#forget(engine);
    if (engine.swap?.isRunning === true) engine.swap.died('the engine was restarted');
    else this.bring(engine, 'registered');
  }

  named(worker: Worker, name: string, stale: string | null): void {
    const engine = this.#table.find(worker);
    if (engine?.isBusy === false && !engine.fits(name, stale)) this.doubt(engine, `it reports ${name}`);
  }

  /** The engine may be another process, or have other weights: until that is known, new requests wait. */
  doubt(engine: SwapEngine, why: string): void {
    if (engine.isDoubted || engine.phase !== 'serving' || engine.ranks.size === 0) return;
    engine.isDoubted = true;
    this.#parts.log.info({ worker: engine.url, why }, 'the weights of an engine are checked');
    void this.#examine(engine);
  }

  async #examine(engine: SwapEngine): Promise<void> {
    const { gate } = this.#parts;
    let found: Found;
    try {
      do {
        // After a swap of it: one that does not load leaves the weights as they are.
        while (engine.isBusy) {
          await engine.swap?.over;
          // It may be over and go on trying to resume.
          if (engine.isBusy) await delay(ASK_MS, null, { ref: false });
        }
        gate.close(engine.url, 'hold');
        found = await this.#check(engine);
      } while (found === 'not known' || (found === 'left' && (await this.#untilTakenBack(engine))));
      if (found === 'same') engine.isDoubted = false;
    } finally {
      if (!engine.isBusy) gate.open(engine.url);
    }
  }

  /**
   * The next router replaces its weights: requests that this one still has are served there, with versions that are not known.
   * @returns whether it is to be checked again: the next router has ended
   */
  async #untilTakenBack({ url, ranks }: SwapEngine): Promise<boolean> {
    this.#parts.gate.open(url);
    const isOver = (): boolean => ranks.size === 0 || this.#table.isClosed;
    while (this.#table.isHandedOver && !isOver()) await delay(LOOK_MS, null, { ref: false });
    return !isOver();
  }

  areServed(worker: Worker, isReturning: boolean): Promise<boolean> | null {
    const engine = this.#table.find(worker);
    if (engine === undefined) return null;
    if (!isServing(engine) || engine.isBusy) return Promise.resolve(isServing(engine));
    // The next router has replaced its weights, so this one can't say which it should have.
    if (engine.snapshot === null && this.#table.isHandedOver) return Promise.resolve(true);
    if (!isReturning && engine.watch?.isOpen === true) {
      // It may have been updated past the router: a name that it should not have is noticed.
      void this.#parts.labels.of(worker).ask();
      return Promise.resolve(true);
    }
    return this.#check(engine).then((found) => {
      if (found === 'left') this.doubt(engine, 'the next router has replaced its weights');
      return isServing(engine);
    });
  }

  /**
   * The engine may be another process. @returns whether its weights are what they should be; `other`: it is brought in anew; `not known`: a swap
   * of it has begun meanwhile, or it may have become another process again; `left`: the next router has replaced them
   */
  async #check(engine: SwapEngine): Promise<Found> {
    await this.#watch(engine);
    const { breaks } = engine;
    const isThere = await this.#isThere(engine);
    const label = this.#parts.labels.of(engine.worker);
    let name = isThere ? await this.#parts.labels.nameOf(engine.worker) : null;
    for (let i = 0; i < MORE_ASKS && isThere && name === null && engine.isLabelled; i++) {
      await delay(ASK_MS, null, { ref: false });
      name = await this.#parts.labels.nameOf(engine.worker);
    }
    const isSame = isThere && engine.fits(name, label.stale) && (await this.#hasKept(engine));
    if (!isServing(engine)) return 'other';
    if (engine.isBusy || (isSame && engine.breaks !== breaks)) return 'not known';
    if (isSame) return 'same';
    this.#parts.log.warn({ worker: engine.url, holds: name, expected: engine.snapshot }, 'engine has other weights');
    const base = engine.set.options.baseIdentity;
    // Engines do not start with such a name: the next router has loaded it.
    if (this.#table.isHandedOver && identityOf(name, base) !== base) {
      engine.lose();
      this.#table.changed(engine);
      return 'left';
    }
    this.#forget(engine);
    this.bring(engine, 'registered');
    return 'other';
  }

  /** Without a name for its weights, an engine has kept them if it is the same process, or if it was started with them. */
  async #hasKept(engine: SwapEngine): Promise<boolean> {
    if (engine.isLabelled || engine.snapshot === engine.set.options.baseIdentity) return true;
    const isSame = await engine.isSameProcess(this.#table.timeoutMs);
    // Of an engine that does not name its start, weights without a name stay unknown.
    return isSame || (engine.snapshot === null && engine.startedAt === null);
  }

  #forget(engine: SwapEngine): void {
    engine.forget();
    this.#table.changed(engine);
  }

  /** Watches the process of the engine, from before it is asked what it has. @param isAtOnce see `ProcessWatch` */
  #watch(engine: SwapEngine, isAtOnce = false): Promise<void> {
    if (engine.ranks.size === 0) return Promise.resolve();
    engine.watch ??= new ProcessWatch(() => {
      // Also of an engine that is not checked now: requests may have come to another process with the belief of before.
      engine.breaks++;
      this.doubt(engine, 'a connection to it was lost');
    });
    this.#watched.add(engine);
    return engine.watch.open(engine.worker.pool.endpoint, isAtOnce);
  }

  /** @param isLater a try to load has just failed */
  async #bring(engine: SwapEngine, job: Job, isLater: boolean): Promise<void> {
    const { set } = engine;
    const { signal } = job.ender;
    const pause = (ms: number): Promise<void> => delay(ms, undefined, { signal, ref: false });
    if (isLater) await untilRetry(job, LOAD_MS);
    // A swap of the fleet may have brought it in meanwhile.
    for (let loadMs = LOAD_MS; !isServing(engine);) {
      // The next router brings it in.
      while (this.#table.isHandedOver) await pause(LOOK_MS);
      await this.#untilKnown(engine, signal);
      const last = await set.untilIdle(engine, signal);
      await this.#watch(engine, true);
      signal.throwIfAborted();
      const version = await this.#parts.labels.nameOf(engine.worker);
      await engine.isSameProcess(this.#table.timeoutMs);
      signal.throwIfAborted();
      if (isServing(engine)) break;
      if (this.#table.isHandedOver) continue;
      // A trainer may have updated it under a pause that an earlier router has seen, and resumes it.
      const heldName = engine.isHeldByTrainer ? null : set.ledger.heldNameOf(engine.url);
      const isHeld = heldName !== null && (await foundPaused(engine, this.#table.timeoutMs)) !== null;
      const swap = isHeld ? null : await set.bring(engine, version, last);
      if (swap === 'late') continue;
      if (swap === null) {
        const { realUpdates } = this.#parts.labels.of(engine.worker);
        const { breaks } = engine;
        const wasPaused = await untilResumed(engine, this.#table, pause);
        signal.throwIfAborted();
        if (wasPaused) await this.#readResumed(engine, { name: heldName ?? version, realUpdates }, breaks);
        else if (!isHeld && !set.hasBegunSince(last) && !isServing(engine)) this.serve(engine);
      } else {
        await set.begin(engine, swap);
        await swap.over;
        signal.throwIfAborted();
        if (isServing(engine)) {
          this.#joinAgain(engine, swap, last);
          continue;
        }
        set.brought();
        if (swap.hasDied) continue;
        await untilRetry(job, loadMs);
        loadMs = Math.min(2 * loadMs, MAX_LOAD_MS);
      }
    }
    set.brought();
    if (!engine.isHeldByTrainer) set.ledger.noteHeldName(engine.url, null);
    engine.isDoubted = false;
    this.#table.changed(engine);
    this.#parts.log.info({ worker: engine.url, snapshot: engine.snapshot }, 'engine has the snapshot of the fleet');
    // It was lost while the engine was asked.
    if (engine.watch?.isOpen !== true) this.doubt(engine, 'its process is not watched');
  }

  /** The engine was found paused and runs again: its trainer may have updated it meanwhile, as under a pause that this router has seen. */
  async #readResumed(engine: SwapEngine, before: BeforeUpdate, breaks: number): Promise<void> {
    const name = await this.#parts.labels.nameOf(engine.worker);
    // The end of a connection is read by then that came before the answer.
    await turn();
    const isWatched = engine.breaks === breaks && engine.watch?.isOpen === true;
    // The weights of another process say nothing of the fleet.
    if (!isWatched && !(await engine.isSameProcess(this.#table.timeoutMs))) return;
    // A swap may have replaced its weights.
    if (engine.phase === 'registered' && !engine.isBusy) this.#table.updated(engine, name, before);
  }

  /** A swap of the fleet comes to an engine that loads, a trainer's update past `/swap` does not. */
  #joinAgain(engine: SwapEngine, swap: EngineSwap, last: LedgerEntry | null): void {
    const { set } = engine;
    if (engine.swap !== swap || set.running !== null || !set.hasBegunSince(last)) return;
    engine.phase = 'registered';
    this.keepOut(engine);
  }

  #isThere(engine: SwapEngine): Promise<boolean> {
    return engine.learn(this.#table.timeoutMs).then(
      () => true,
      () => false,
    );
  }

  async #untilKnown(engine: SwapEngine, signal: AbortSignal): Promise<void> {
    for (let askMs = ASK_MS; ; askMs = Math.min(2 * askMs, MAX_ASK_MS)) {
      const isKnown = await this.#isThere(engine);
      signal.throwIfAborted();
      if (isKnown) return;
      await delay(askMs, undefined, { signal, ref: false });
    }
  }
}

async function untilRetry(job: Job, ms: number): Promise<void> {
  const { signal } = job.ender;
  job.retry = new AbortController();
  await delay(ms, undefined, { signal: AbortSignal.any([signal, job.retry.signal]), ref: false }).catch(() => {});
  signal.throwIfAborted();
}

/** What a check of an engine's weights has found. */
type Found = 'same' | 'other' | 'not known' | 'left';

const isServing = ({ phase }: SwapEngine): boolean => phase === 'serving';

interface FoundPaused {
  /** The command that resumes it. */
  readonly command: string;
  /** For an operator. */
  readonly why: string;
}

/** @returns null: the engine is not paused, as far as it reports */
async function foundPaused({ kind, url, worker }: SwapEngine, timeoutMs: number): Promise<FoundPaused | null> {
  const calls = kind === null ? null : weightCalls[kind];
  if (calls === null) return null;
  const ask = worker.asker(timeoutMs);
  const { isPaused, mayBePaused } = await engines[kind!].readSigns(ask);
  if (isPaused !== true) {
    // SGLang (0.5.23) reports no pause, but its /health generates a token. vLLM reports one unless it does not answer at all.
    if (!mayBePaused || kind !== 'sglang') return null;
    const health = await ask('/health').catch(() => null);
    if (health?.status === 200) return null;
  }
  // vLLM (0.32) says so of a paused engine too, which /wake_up resumes as well.
  const isAsleep = kind === 'vllm' && (await askJson(ask, '/is_sleeping'))?.['is_sleeping'] === true;
  const path = isAsleep ? '/wake_up' : calls.resume.path;
  const command = `curl -X POST ${url}${path} -H 'content-type: application/json' -d '{}'`;
  const found = isPaused === true ? 'was found paused' : 'fails /health and may be paused';
  const why = `the engine ${found}, by no swap of this router: if its weights are complete, resume it with ${command}; else load weights with POST /swap`;
  return { command, why };
}

/**
 * An engine that joins may be paused although no swap of this router is at work there: by an earlier router, or by a trainer. Only they or an
 * operator know whether its weights are complete, so it is resumed by them or by a swap.
 *
 * @returns whether it was paused; then it is resumed now, or a swap was at work there
 */
async function untilResumed(
  engine: SwapEngine,
  table: EngineTable,
  pause: (ms: number) => Promise<void>,
): Promise<boolean> {
  const found = await foundPaused(engine, table.timeoutMs);
  if (found === null) return false;
  const setPaused = (why: string | null): void => {
    engine.pausedBecause = why;
    for (const worker of engine.ranks) table.parts.fleet.setReason(worker, 'paused', why !== null);
  };
  engine.snapshot = null;
  engine.whole = null;
  setPaused(found.why);
  table.parts.log.error({ worker: engine.url, resume: found.command, detail: found.why }, 'engine found paused');
  const isBroughtIn = (): boolean => engine.isBusy || engine.phase !== 'registered';
  do await pause(LOOK_MS);
  while (!isBroughtIn() && (await foundPaused(engine, table.timeoutMs)) !== null);
  setPaused(null);
  if (engine.swap?.isRunning === true) await engine.swap.over;
  return true;
}
