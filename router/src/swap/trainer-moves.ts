import { UNSET } from '../engines/weight-label.ts';
import type { VersionLabels } from '../weights/version-labels.ts';
import { RouterError } from '../kit/errors.ts';
import type { Logger } from '../observe/log.ts';
import type { SwapEngine } from './engine.ts';
import type { LedgerEntry } from './ledger.ts';
import type { Transition } from './plan.ts';
import type { WorkerSet } from './worker-set.ts';

/** How an engine is, for the trainer. */
export interface MovedEngine {
  readonly url: string;
  readonly isReady: boolean;
  readonly error: string | null;
}

type Answer = RouterError | readonly MovedEngine[];

interface End {
  readonly of: LedgerEntry;
  readonly answer: Promise<Answer>;
  isOver: boolean;
}

const REMIND_MS = 30_000;

/**
 * Swaps whose weights a trainer sends itself (NCCL, IPC, tensors): between `begin` and `end` the engines are paused. Nothing resumes them
 * by itself, because only the trainer knows what they have.
 */
export class TrainerMoves {
  readonly #set: WorkerSet;
  readonly #labels: VersionLabels;
  readonly #log: Logger;
  #reminder: NodeJS.Timeout | null = null;
  /** The last end that was not refused. */
  #end: End | null = null;

  constructor(set: WorkerSet, labels: VersionLabels, log: Logger) {
    this.#set = set;
    this.#labels = labels;
    this.#log = log;
    if (this.#isOpen) this.#remind();
  }

  get #isOpen(): boolean {
    const { running } = this.#set;
    return running?.mover === 'trainer' && !running.isUndone;
  }

  /** Resolves when all engines are paused, or will not be. */
  async begin(identity: string, transition: Transition): Promise<Answer> {
    const { running } = this.#set;
    const isSame = running?.mover === 'trainer' && running.identity === identity && !running.isUndone;
    if (!isSame && this.#set.refusal !== null) return this.#set.refusal;
    if (running !== null && !isSame) {
      const message = `A swap to ${running.identity} runs. Wait for its end (GET /swap), or undo it (DELETE /swap).`;
      return new RouterError('swap_conflict', message);
    }
    if (this.#set.isHeld) {
      const message = 'A trainer has paused engines without /swap/begin. Resume them first.';
      return new RouterError('swap_conflict', message);
    }
    if (!isSame) {
      this.#set.signal({ identity, reset: 'all', transition, mover: 'trainer' });
      this.#remind();
    }
    // After a restart of this router it is still asking engines of this swap, and then pausing them.
    await this.#set.untilAsked();
    await this.#set.begun;
    for (const { swap } of this.#set.engines.values()) await swap?.ready;
    return this.#engines(isReady);
  }

  /** The trainer has sent the weights. Resolves when the engines go on with them; the same if it is repeated before another swap. */
  async end(identity: string | undefined): Promise<Answer> {
    const { running, ledger } = this.#set;
    const isOpen = running?.mover === 'trainer';
    // Clients repeat it when they did not get the response. Without an identity it may also be of a trainer that has begun nothing.
    const of = isOpen ? running : identity === undefined ? null : ledger.last;
    if (of !== null && of.identity === (identity ?? of.identity) && this.#isAnswered(of)) return this.#end!.answer;
    if (!isOpen) {
      if (this.#set.refusal !== null) return this.#set.refusal;
      const isLost = [...this.#set.engines.values()].some(({ pausedBecause }) => pausedBecause !== null);
      const lost = ' Engines were found paused: without --data-dir a restarted router does not know what was begun.';
      const message = `No swap of a trainer was begun: POST /swap/begin first.${isLost ? lost : ''}`;
      return new RouterError('swap_conflict', message);
    }
    if (identity !== undefined && identity !== running.identity) {
      return new RouterError('swap_conflict', `The swap that was begun is to ${running.identity}, not ${identity}.`);
    }
    const end: End = { of: running, answer: this.#goOn(running), isOver: false };
    this.#end = end;
    const answer = await end.answer;
    end.isOver = true;
    // They stay paused, and the trainer may mend them.
    if (answer instanceof RouterError) this.#end = null;
    return answer;
  }

  /** Its end has an answer, or will have it. An engine that an earlier router has paused may be ready only after the first one. */
  #isAnswered(of: LedgerEntry): boolean {
    return of === this.#end?.of && !(this.#end.isOver && [...this.#set.engines.values()].some(isReady));
  }

  async #goOn({ identity }: LedgerEntry): Promise<Answer> {
    // As at the begin.
    await this.#set.untilAsked();
    const engines = [...this.#set.engines.values()];
    for (const { swap } of engines) if (swap?.order.mover === 'trainer') await swap.ready;
    const ready = engines.filter(isReady);
    const wrong = await Promise.all(ready.map((engine) => this.#problemOf(engine, identity)));
    const problems = wrong.filter((problem) => problem !== null);
    if (problems.length > 0) {
      const message = `Engines report other weights than ${identity}: ${problems.join('; ')}. They stay paused.`;
      return new RouterError('swap_conflict', message);
    }
    for (const { swap } of ready) swap!.moved();
    await Promise.all(ready.map(({ swap }) => swap!.over));
    if (ready.length > 0) this.#set.endedByTrainer();
    // The trainer does not repeat an end that has a response.
    await this.#set.flush();
    return this.#engines(({ phase, snapshot }) => phase === 'serving' && snapshot === identity);
  }

  close(): void {
    if (this.#reminder !== null) clearInterval(this.#reminder);
    this.#reminder = null;
  }

  /** An engine may report the new version, none, or the one of before: then it is labelled. null: no problem. */
  async #problemOf({ worker, url, swap }: SwapEngine, identity: string): Promise<string | null> {
    const name = await this.#labels.nameOf(worker);
    const { was, previous } = swap!.order;
    // What was last read may be older than what the router has loaded since.
    const isFine = name === null || [identity, UNSET, was.name, previous?.identity].includes(name);
    // A router without this check has begun the swap.
    return isFine || was.name === undefined ? null : `${url} has ${name}`;
  }

  #engines(isDone: (engine: SwapEngine) => boolean): MovedEngine[] {
    return Array.from(this.#set.engines.values(), (engine) => ({
      url: engine.url,
      isReady: isDone(engine),
      error: engine.error ?? engine.swap?.state.error ?? null,
    }));
  }

  #remind(): void {
    const beganMs = performance.now();
    this.close();
    this.#reminder = setInterval(() => {
      if (!this.#isOpen) return this.close();
      const secs = Math.round((performance.now() - beganMs) / 1000);
      const snapshot = this.#set.running!.identity;
      this.#log.error({ snapshot, secs }, 'engines are paused for a trainer, and POST /swap/end has not come');
    }, REMIND_MS).unref();
  }
}

/** It is paused, and the trainer may send weights. */
const isReady = ({ swap }: SwapEngine): boolean =>
  swap?.isRunning === true && swap.state.stage === 'load' && swap.order.mover === 'trainer';
