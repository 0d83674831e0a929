import type { SwapCounters } from '../observe/metrics/spec.ts';
import type { EngineTable } from './engine-table.ts';
import type { Gate } from './gate.ts';
import { type SwapState, phasesOf } from './plan.ts';

/** Counts what swaps did and how long it took, for /metrics. */
export class SwapMeters {
  readonly #ended = new Map([
    ['done', 0],
    ['error', 0],
  ]);
  readonly #stageSecs = new Map<string, number>();

  /** The swap of an engine has ended. */
  ended(state: SwapState): void {
    this.#ended.set(state.stage, (this.#ended.get(state.stage) ?? 0) + 1);
    for (const [stage, ms] of Object.entries(phasesOf(state)))
      this.#stageSecs.set(stage, (this.#stageSecs.get(stage) ?? 0) + ms / 1000);
  }

  counters(engines: EngineTable, gate: Gate): SwapCounters {
    return {
      ended: this.#ended,
      stageSecs: this.#stageSecs,
      engines: () => engines.countsByPhase(),
      waiting: () => gate.waiting,
      refused: () => gate.refused,
    };
  }
}
