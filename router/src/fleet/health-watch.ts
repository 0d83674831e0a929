import type { Asker } from '../engines/ask.ts';
import type { EngineFacts, EngineSigns } from '../engines/engine.ts';
import { Unidentified, engines, identify } from '../engines/engines.ts';
import type { Random } from '../kit/rng.ts';
import { throwLater } from '../kit/throw-later.ts';
import type { Breakers } from './breakers.ts';
import type { Fleet } from './fleet.ts';
import type { FleetModels } from './fleet-models.ts';
import { HangWatch, AnswerProbe } from './hang-watch.ts';
import type { HangOptions } from './hang.ts';
import type { Pauses } from './pauses.ts';
import { REASONS, type Worker } from './worker.ts';

export interface HealthOptions extends HangOptions {
  readonly path: string;
  readonly intervalMs: number;
  readonly timeoutMs: number;
  /** Passed checks in a row that readmit a worker. */
  readonly successThreshold: number;
  /** A new worker without an answer after this time is logged. */
  readonly startupTimeoutMs: number;
  /** The longest time between two checks of a worker that never answered. */
  readonly startupIntervalMs: number;
  readonly isEnabled: boolean;
}

/** The interval while a worker's state is in doubt, so that a change is seen soon. */
const DOUBT_INTERVAL_MS = 1_000;

/** What health checks learn and ask of the weights of engines. */
export interface WeightCheck {
  /** An engine reported this version when it was identified. */
  learned(worker: Worker, version: string | null): void;
  /**
   * Whether an engine has the weights that the fleet serves.
   * @param ranks the workers of the engine
   * @param listed resolves when the engine has listed its models, or did not in time; null: it had before
   * @param onHeldBack called once for each version for which a worker is held back
   */
  areServed(
    ranks: ReadonlySet<Worker>,
    isReturning: boolean,
    listed: Promise<void> | null,
    onHeldBack: (worker: Worker, detail: string) => void,
  ): Promise<boolean>;
  restarted(worker: Worker): void;
}

/** The number of processes behind one URL that are distinguished. */
const MAX_STARTS = 64;

const REFUSED = 'ECONNREFUSED';

/** An engine that was healthy and not identified at so many checks in a row has not just ended: it does not have the paths that tell kinds apart. */
const LASTING_CHECKS = 3;

/** `restarted`: it is a new process, because connections were refused or it reports another start. `identified`: its kind is known. */
export type HealthEvent =
  | 'identified'
  | 'quarantined'
  | 'quarantined_by_request'
  | 'readmitted'
  | 'restarted'
  | 'held_back'
  | 'not_up_yet'
  | 'not_started'
  | 'hung';

/** `failedChecks` in a row, with `quarantined`. */
export type OnHealthEvent = (event: HealthEvent, worker: Worker, detail: string, failedChecks?: number) => void;

/** What the watches of a fleet share. */
export interface HealthWatchParts {
  readonly fleet: Fleet;
  readonly options: HealthOptions;
  readonly random: Random;
  readonly breakers: Breakers;
  readonly versions: WeightCheck;
  readonly pauses: Pauses;
  readonly models: FleetModels;
  readonly onEvent: OnHealthEvent;
}

const isQuarantined = ({ reasons }: Worker): boolean => (reasons & REASONS.unhealthy) !== 0;

/** Checks the health of one engine for all its ranks. The interval depends on how certain the state is. */
export class HealthWatch {
  readonly #parts: HealthWatchParts;
  /** The workers of the engine, one per rank; empty after the last one was removed. */
  readonly #workers = new Set<Worker>();
  /** Removed workers of the engine with requests in flight, which end if the engine hangs. */
  readonly #leaving = new Set<Worker>();
  readonly #sinceMs = performance.now();
  #failures = 0;
  #successes = 0;
  /** The process is another one than the one that was identified. */
  #isNew = false;
  /** Checks in a row that found the engine healthy and did not identify it. */
  #unidentified = 0;
  #timer: NodeJS.Timeout | null = null;
  #isAsking = false;
  /** The engine was resumed during the check that is in progress. */
  #wasResumed = false;
  /** It failed a check or a request since its last passed check, so it may be a new process. */
  #isSuspect = false;
  /** Why the next answer is that of a new process; null: nothing says so. */
  #newBecause: string | null = null;
  /** What it has reported of the starts of its processes, newest last: behind a proxy they take turns. */
  readonly #starts = new Set<string>();
  /** It was logged that it does not start. */
  #isReported = false;
  readonly #first = Promise.withResolvers<void>();
  /** Resolves when the first check has ended. */
  readonly firstCheck = this.#first.promise;

  readonly #hangs: HangWatch;

  constructor(parts: HealthWatchParts) {
    this.#parts = parts;
    const { fleet, options, onEvent } = parts;
    this.#hangs = new HangWatch(fleet, options, (worker, proof) => onEvent('hung', worker, proof));
  }

  add(worker: Worker): void {
    this.#workers.add(worker);
    // The next check may be far away, as the other ranks are proven. A check in progress counts for the new rank too.
    if (!this.#isAsking && this.#successes > 0) this.checkIn(0);
  }

  /** The worker was removed, and may have requests in flight. @returns whether it was the last worker */
  leave(worker: Worker): boolean {
    this.#workers.delete(worker);
    this.#leaving.add(worker);
    return this.#workers.size === 0;
  }

  /** The removed worker has no requests any more. */
  remove(worker: Worker): void {
    this.#leaving.delete(worker);
    if (this.#isOver) this.end();
  }

  checkIn(delayMs: number): void {
    if (!this.#parts.options.isEnabled) return;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#check(), delayMs);
  }

  /** A request could not reach the engine: checks at once. */
  suspect(): void {
    this.#isSuspect = true;
    if (!this.#isAsking && this.#failures === 0) this.checkIn(0);
  }

  /** What it failed was the pause: it is as new, and is checked at once. */
  resumed(): void {
    this.#failures = 0;
    this.#wasResumed = true;
    for (const worker of this.#workers) {
      this.#parts.fleet.setReason(worker, 'unhealthy', false);
      this.#parts.fleet.setReason(worker, 'hung', false);
    }
    if (!this.#isAsking) this.checkIn(0);
  }

  /** An operator distrusts the engine: it gets no requests until it has passed its checks, and that of its weights, again. */
  quarantine(): void {
    this.#isSuspect = true;
    this.#successes = 0;
    for (const worker of this.#workers) {
      if (isQuarantined(worker)) continue;
      this.#parts.fleet.setReason(worker, 'unhealthy', true);
      this.#parts.onEvent('quarantined_by_request', worker, 'POST /workers/{id}/quarantine');
    }
    if (!this.#isAsking) this.checkIn(0);
  }

  end(): void {
    this.#workers.clear();
    this.#leaving.clear();
    if (this.#timer !== null) clearTimeout(this.#timer);
  }

  async #check(): Promise<void> {
    const { options, random } = this.#parts;
    this.#timer = null;
    this.#isAsking = true;
    const [worker] = this.#all as [Worker];
    const asker = worker.asker(options.timeoutMs);
    // A response that nothing expects ends this check, and never the checks.
    const found = await this.#look(worker, asker).catch((error: unknown) => {
      throwLater(error);
      return 'fault' as const;
    });
    this.#isAsking = false;
    this.#first.resolve();
    if (this.#isOver) return;
    if (found === 'void' || (found === 'well' && this.#isUnidentified)) return this.checkIn(0);
    // Not awaited: its metrics may come slowly.
    if (found === 'well') void this.#lookForRestart(worker, asker);
    // Up to a tenth less, at random, so that checks that started together drift apart.
    this.checkIn(this.#intervalMs * (1 - random() / 10));
  }

  /** @returns `void`: the engine was asked while it was paused */
  async #look(worker: Worker, asker: Asker): Promise<'well' | 'unwell' | 'void'> {
    const { options, pauses, onEvent } = this.#parts;
    this.#wasResumed = false;
    const askedMs = performance.now();
    const probe = new AnswerProbe(asker);
    const isInDoubt = this.#failures > 0 || this.#all.some((each) => this.#hangs.isInDoubt(each));
    const early = isInDoubt ? signsOf(worker, probe.ask) : null;
    const failed = await problemOf(probe.ask, options.path);
    if (failed !== null) this.#unidentified = 0;
    const signs = early === null && failed === null ? null : await (early ?? signsOf(worker, probe.ask));
    const problem = failed ?? (await this.#identify(asker));
    if (problem !== null && this.#wasResumed) return 'void';
    if (signs?.isPaused === false) pauses.forget(worker.engineUrl);
    const isPaused = signs?.isPaused === true || pauses.isPaused(worker.engineUrl) || worker.isInSwap;
    for (const each of this.#all) Object.assign(each, { problem, checkedAtMs: Date.now() });
    // A paused engine that answers with an error is not broken, but not healthy either. A refused connection is a failure also then: the
    // process of the engine is gone. An engine that never passed a check may be loading: it is not known to work after the pause.
    const isExcused = isPaused && probe.hasAnswer && problem !== REFUSED && this.#all.some(({ isProven }) => isProven);
    if (problem === null) await this.#passed();
    else if (!isExcused) this.#failed(problem);
    if (early === null && problem === null) this.#hangs.clear();
    else {
      const look = { askedMs, isAnswering: probe.hasAnswer, isWell: problem === null, isPaused, signs };
      for (const back of this.#hangs.look(this.#all, look)) {
        if (this.#workers.has(back) && !isQuarantined(back)) onEvent('readmitted', back, 'it makes tokens again');
      }
    }
    return problem === null ? 'well' : 'unwell';
  }

  /** A process that was replaced between two checks refused no connection of theirs. A start that was seen before is that of another one behind the URL. */
  async #lookForRestart({ engine }: Worker, asker: Asker): Promise<void> {
    const start = engine === null ? null : ((await engines[engine].readStart?.(asker)) ?? null);
    if (start === null || this.#starts.has(start) || this.#isOver) return;
    const [oldest] = this.#starts;
    this.#starts.add(start);
    if (oldest === undefined) return;
    if (this.#starts.size > MAX_STARTS) this.#starts.delete(oldest);
    this.#newBecause ??= 'it reports another start of its process';
    this.suspect();
  }

  get #all(): Worker[] {
    return [...this.#workers, ...this.#leaving];
  }

  get #isOver(): boolean {
    return this.#workers.size === 0 && this.#leaving.size === 0;
  }

  get #isUnidentified(): boolean {
    return this.#isNew || [...this.#workers].some(({ engine }) => engine === null);
  }

  get #intervalMs(): number {
    const { intervalMs, startupIntervalMs } = this.#parts.options;
    if (this.#failures === 0 && [...this.#workers].every(({ reasons }) => reasons === 0)) return intervalMs;
    const soon = Math.min(DOUBT_INTERVAL_MS, intervalMs);
    if (this.#all.some(({ isProven }) => isProven)) return soon;
    // Engines load for minutes: the longer it takes, the longer the interval.
    return Math.max(soon, Math.min(startupIntervalMs, (performance.now() - this.#sinceMs) / 10));
  }

  /** The engine is healthy: learns what it is, if that is not known. @returns the problem; null: it is known */
  async #identify(asker: Asker): Promise<string | null> {
    const why = this.#newBecause;
    if (why !== null) {
      this.#newBecause = null;
      // The new process may be of another kind, or have other ranks or another size. Until that is known it counts as what it was.
      this.#isNew = true;
      for (const worker of this.#workers) if (worker.isProven) this.#parts.onEvent('restarted', worker, why);
    }
    if (!this.#isUnidentified) return null;
    try {
      this.#learn(await identify(asker, this.#unidentified >= LASTING_CHECKS));
      this.#isNew = false;
      this.#unidentified = 0;
      return null;
    } catch (error) {
      if (!(error instanceof Unidentified)) throw error;
      this.#unidentified++;
      return error.message;
    }
  }

  async #passed(): Promise<void> {
    const { fleet, options, breakers, versions, models, onEvent } = this.#parts;
    this.#failures = 0;
    this.#successes++;
    for (const worker of this.#workers) breakers.passedCheck(worker);
    // Not awaited: a list that comes slowly keeps no worker from requests that need no list.
    const unread = [...this.#workers].filter((worker) => !models.isRead(worker));
    const listed = unread.length > 0 ? models.read(unread) : null;
    const { successThreshold } = options;
    if ([...this.#workers].some(isQuarantined) && this.#successes < successThreshold) {
      const problem = `${this.#successes} of ${successThreshold} good checks (--health-success-threshold)`;
      for (const worker of this.#workers) worker.problem = problem;
      return;
    }
    let isReturning = this.#isSuspect;
    for (const worker of this.#workers) {
      worker.isProven = true;
      isReturning ||= worker.reasons !== 0;
    }
    this.#isSuspect = false;
    const hasRightWeights = await versions.areServed(this.#workers, isReturning, listed, (worker, detail) =>
      onEvent('held_back', worker, detail),
    );
    for (const worker of this.#workers) {
      // A worker that was added during the check.
      if (worker.engine === null) continue;
      if (isQuarantined(worker) && hasRightWeights) {
        breakers.readmitted(worker);
        onEvent('readmitted', worker, `${this.#successes} good checks`);
      }
      fleet.setReason(worker, 'version', !hasRightWeights);
      fleet.setReason(worker, 'unhealthy', false);
    }
  }

  #learn(facts: EngineFacts): void {
    const { fleet, versions, onEvent } = this.#parts;
    const isMeant = ({ engine }: Worker): boolean => this.#isNew || engine === null;
    const asking = [...this.#workers].find((worker) => isMeant(worker) && worker.given.asksForRanks);
    if (asking !== undefined && facts.dpSize !== null) fleet.setRanks(asking, facts.dpSize);
    for (const worker of this.#workers) fleet.setReason(worker, 'ranks', false);
    for (const worker of this.#workers) {
      if (!isMeant(worker)) continue;
      worker.engine = facts.kind;
      worker.engineVersion = facts.engineVersion;
      versions.learned(worker, facts.weightVersion);
      // Without a rank it has the caches of all ranks.
      const ranks = worker.rank === null ? (facts.dpSize ?? 1) : 1;
      worker.kvTokens = facts.kvTokens === null ? null : facts.kvTokens * ranks;
      onEvent('identified', worker, facts.kind);
    }
  }

  #failed(problem: string): void {
    const { fleet, options, onEvent } = this.#parts;
    const { startupTimeoutMs, failureThreshold } = options;
    this.#successes = 0;
    this.#failures++;
    this.#isSuspect = true;
    if (problem === REFUSED) {
      this.#newBecause = 'the connection was refused before';
      this.#starts.clear();
    }
    for (const worker of this.#workers) {
      if (!worker.isProven && !this.#isReported && performance.now() - this.#sinceMs > startupTimeoutMs) {
        this.#isReported = true;
        onEvent('not_started', worker, `no good check in ${startupTimeoutMs / 1000} s: ${problem}`);
      }
      if (isQuarantined(worker)) continue;
      // A worker that never answered is unhealthy at its first failure.
      if (this.#failures < failureThreshold && worker.isProven) continue;
      fleet.setReason(worker, 'unhealthy', true);
      onEvent(worker.isProven ? 'quarantined' : 'not_up_yet', worker, problem, this.#failures);
    }
  }
}

/** @returns null if the engine is healthy, else the problem */
async function problemOf(asker: Asker, path: string): Promise<string | null> {
  try {
    const { status } = await asker(path);
    if (status === 508) return `${path} answered 508: the worker is this router itself`;
    return status >= 200 && status < 300 ? null : `${path} answered ${status}`;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? (error as Error).message;
  }
}

/** What the engine reports of its work; null if its kind is not known. */
const signsOf = ({ engine }: Worker, asker: Asker): Promise<EngineSigns | null> =>
  engine === null ? Promise.resolve(null) : engines[engine].readSigns(asker);
