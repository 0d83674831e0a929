import { UNSET, identityOf } from '../engines/weight-label.ts';
import type { SwapOrder } from './engine-swap.ts';
import type { SwapEngine } from './engine.ts';
import type { LedgerEntry } from './ledger.ts';
import { wholeOf } from './load-calls.ts';
import type { WorkerSet } from './worker-set.ts';

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
    if (isLate() || isUndone !== (interrupted?.isUndone === true)) return 'late';
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
      mover: isUndone ? 'router' : (interrupted?.mover ?? 'router'),
      target,
      // Only an engine that took part in an interrupted swap may go back to what the fleet had before it.
      previous: before === null ? null : places.of(before, engine),
      weights: 'unknown',
      hasTarget,
    };
  }

  /** Engines are paused for the trainer whose swap the interrupted one is, and it has not ended it. */
  get awaitsTrainer(): boolean {
    const entry = this.interrupted;
    if (entry?.endedAt !== null || entry !== this.#set.ledger.last) return false;
    if (entry.mover !== 'trainer' || entry.isUndone || this.hasTrainerEnded) return false;
    return [...entry.engines.values()].some(({ stage }) => stage !== 'done' && stage !== 'error');
  }

  /** The swap in which the engine was when an earlier router ended. */
  #interruptedAt(engine: SwapEngine): LedgerEntry | null {
    const entry = this.interrupted;
    if (entry === null || entry !== this.#set.ledger.last || engine.hasBeenIn) return null;
    // Nothing would resume the engine any more.
    if (entry.endedAt !== null && entry.mover === 'trainer' && !entry.isUndone) return null;
    return entry.engines.get(engine.url)?.stage === 'done' ? null : entry;
  }

  /** The snapshot of most serving engines, where the ledger has none. */
  #majority(): string | null {
    const engines = [...this.#set.engines.values()];
    const held = engines.filter(({ phase }) => phase === 'serving').map(({ snapshot }) => snapshot);
    const counts = Map.groupBy(held, (snapshot) => snapshot);
    return [...counts.values()].toSorted((a, b) => b.length - a.length)[0]?.[0] ?? null;
  }
}
