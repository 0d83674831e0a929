import { setTimeout as delay } from 'node:timers/promises';
import { UNSET, identityOf } from '../engines/weight-label.ts';
import type { SwapOrder } from './engine-swap.ts';
import type { SwapEngine } from './engine.ts';
import type { EngineRecord, LedgerEntry } from './ledger.ts';
import { wholeOf } from './load-calls.ts';
import type { WorkerSet } from './worker-set.ts';

const RESTARTED = 'the engine was restarted';

/** An engine that joins is asked several questions, one after the other. */
const MAX_QUESTIONS = 4;
const LOOK_MS = 50;

/** Which weights an engine gets that joins or returns: those of the fleet, or those of a swap that an earlier router did not end. */
export class Joining {
  /** The swap that an earlier router did not end. */
  readonly interrupted: LedgerEntry | null;
  /** The trainer whose swap that is has ended it. */
  hasTrainerEnded = false;
  /**
   * Engines at which an earlier router was at work when it ended, by URL, with the stage that it had come to: also those that it brought in
   * alone, after the swap of the fleet. They may be paused, with half-written weights.
   */
  readonly #left: Map<string, string>;
  readonly #set: WorkerSet;

  constructor(set: WorkerSet) {
    const { last } = set.ledger;
    this.#set = set;
    this.interrupted = last?.endedAt === null ? last : null;
    this.#left = set.ledger.unfinished();
  }

  /**
   * @param version what the engine reports
   * @param isLate whether a swap or a trainer's pause has begun since the engine was asked
   * @returns how it gets them; null: it has them; `late`: it is to be asked again, after the swap or the pause
   */
  async orderFor(
    engine: SwapEngine,
    version: string | null,
    isLate: () => boolean,
  ): Promise<SwapOrder | 'late' | null> {
    const { ledger, places, options } = this.#set;
    const holds = identityOf(version, options.baseIdentity);
    await places.findBootPath(engine, holds);
    const interrupted = this.#interruptedAt(engine);
    const leftAt = this.#left.get(engine.url) ?? null;
    const wanted = interrupted ?? ledger.wanted;
    const isLabelled = version === holds;
    const before = interrupted === null ? null : places.identityBefore(interrupted);
    const isUndone = interrupted?.isUndone === true;
    // What the fleet has stays known when the ledger is cleared.
    const ofFleet = wanted?.identity ?? ledger.start.identity ?? null;
    const identity = (isUndone ? before : ofFleet) ?? (isLabelled ? holds : (this.#majority() ?? holds));
    // Half-written weights have the version of before.
    const areComplete = interrupted === null && leftAt === null && engine.phase !== 'quarantined';
    const name = version ?? UNSET;
    const hasKeptName = name === engine.keptName;
    // It was not restarted, unless it was started with this name.
    const areUnnamed = hasKeptName && (name !== UNSET || ofFleet === null);
    const target = places.of(identity, engine);
    const hasIt = areComplete && (areUnnamed || holds === identity);
    const hasLoaded = interrupted === null ? leftAt === 'label' || leftAt === 'resume' : interrupted.mover === 'router';
    const hasTarget = hasLoaded && !isUndone && holds === identity;
    const isKnown = areComplete && version !== null && !hasKeptName;
    const had = hasIt ? target : hasTarget || isKnown ? places.of(holds, engine) : null;
    const whole = had === null ? null : await wholeOf(had);
    // All above only asks: the engine may have to be asked again, also because the interrupted swap was undone meanwhile.
    if (isLate() || interrupted !== this.#interruptedAt(engine) || isUndone !== (interrupted?.isUndone === true))
      return 'late';
    const record = interrupted?.engines.get(engine.url);
    const isByTrainer = interrupted?.mover === 'trainer' && !isUndone;
    if (isByTrainer && isOther(engine, version, record!, [before, identity])) {
      engine.error = RESTARTED;
      ledger.note(interrupted, engine.url, { ...record!, stage: 'error', error: RESTARTED });
      return 'late';
    }
    this.#left.delete(engine.url);
    engine.hasBeenIn = true;
    engine.isLabelled = isLabelled;
    engine.whole = whole;
    if (hasIt) {
      engine.snapshot = identity;
      if (areUnnamed) engine.unname(name);
      else ledger.noteKeptName(engine.url, null);
      engine.error = null;
      engine.namespaces.apply(wanted ?? ledger.start);
      return null;
    }
    return {
      transition: 'async',
      drains: false,
      mover: isByTrainer ? 'trainer' : 'router',
      target,
      // Only an engine that took part in an interrupted swap may go back to what the fleet had before it.
      previous: before === null ? null : places.of(before, engine),
      weights: 'unknown',
      hasTarget,
      was:
        record === undefined ? { name: version, start: engine.startedAt } : { name: record.name, start: record.start },
    };
  }

  /** Engines are paused for the trainer whose swap the interrupted one is, and it has not ended it. */
  get awaitsTrainer(): boolean {
    const entry = this.interrupted;
    if (entry?.endedAt !== null || entry !== this.#set.ledger.last) return false;
    if (entry.mover !== 'trainer' || entry.isUndone || this.hasTrainerEnded) return false;
    return [...entry.engines.values()].some(({ stage }) => stage !== 'done' && stage !== 'error');
  }

  /** The interrupted swap, if it goes on at the engine. */
  #interruptedAt(engine: SwapEngine): LedgerEntry | null {
    const entry = this.interrupted;
    if (entry === null || entry !== this.#set.ledger.last || engine.hasBeenIn) return null;
    const stage = entry.engines.get(engine.url)?.stage;
    if (stage === 'done') return null;
    if (entry.mover === 'router' || entry.isUndone) return entry;
    // A trainer sends weights only to the engines that were paused for it, and resumes none after its end.
    return entry.endedAt === null && stage !== undefined && stage !== 'error' ? entry : null;
  }

  /** Whether the engine waits for the end of the interrupted swap: its trainer sends weights to other engines, and not to this one. */
  waits(engine: SwapEngine): boolean {
    if (!this.awaitsTrainer || this.#interruptedAt(engine) !== null) return false;
    return this.interrupted!.engines.get(engine.url)?.stage !== 'done';
  }

  /** Resolves when the engines at which the interrupted swap goes on were asked what they have, or do not answer. */
  async untilAsked(timeoutMs: number): Promise<void> {
    const set = this.#set;
    const untilMs = performance.now() + MAX_QUESTIONS * timeoutMs;
    const isNext = (engine: SwapEngine): boolean =>
      engine.phase === 'registered' && this.#interruptedAt(engine) !== null;
    const isOver = (): boolean => set.isHeld || set.refusal !== null || performance.now() > untilMs;
    const untilNext = async (engine: SwapEngine): Promise<void> => {
      // An engine that has died costs no more than this question.
      const answers = await engine.learn(timeoutMs).then(
        () => true,
        () => false,
      );
      while (answers && isNext(engine) && !isOver()) await delay(LOOK_MS);
    };
    await Promise.all([...set.engines.values()].filter(isNext).map(untilNext));
  }

  /** The snapshot of most serving engines, where the ledger has none. */
  #majority(): string | null {
    const engines = [...this.#set.engines.values()];
    const held = engines.filter(({ phase }) => phase === 'serving').map(({ snapshot }) => snapshot);
    const counts = Map.groupBy(held, (snapshot) => snapshot);
    return [...counts.values()].toSorted((a, b) => b.length - a.length)[0]?.[0] ?? null;
  }
}

/**
 * Whether the engine is another process than the one that a trainer's swap had paused, as far as it reports: it has nothing of what the trainer sent.
 * @param named what the other one may report by now
 */
function isOther(
  { startedAt }: SwapEngine,
  version: string | null,
  was: EngineRecord,
  named: (string | null)[],
): boolean {
  const { name = null, start = null } = was;
  if (start !== null && startedAt !== null) return start !== startedAt;
  return name !== null && version !== null && version !== name && !named.includes(version);
}
