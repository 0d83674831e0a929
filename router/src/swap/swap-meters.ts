import { Histogram } from '../observe/durations.ts';
import type { SwapCounters } from '../observe/metrics/spec.ts';
import type { EngineTable } from './engine-table.ts';
import type { Gate } from './gate.ts';
import { type SwapState, phasesOf } from './plan.ts';

/** Engines come and go: the times of the oldest are dropped beyond this number. */
const MAX_ENGINES = 4_096;

/** Counts what swaps did and how long it took, for /metrics. */
export class SwapMeters {
  readonly #ended = new Map([
    ['done', 0],
    ['error', 0],
  ]);
  /** By engine and stage. */
  readonly #stageSecs = new Map<string, Map<string, number>>();
  readonly #times = new Histogram();

  /** The swap of an engine has ended. */
  ended(engineUrl: string, state: SwapState): void {
    this.#ended.set(state.stage, (this.#ended.get(state.stage) ?? 0) + 1);
    const stages = this.#stagesOf(engineUrl);
    let totalMs = 0;
    for (const [stage, ms] of Object.entries(phasesOf(state))) {
      stages.set(stage, (stages.get(stage) ?? 0) + ms / 1000);
      totalMs += ms;
    }
    this.#times.observe(totalMs / 1000);
  }

  #stagesOf(engineUrl: string): Map<string, number> {
    let stages = this.#stageSecs.get(engineUrl);
    if (stages !== undefined) return stages;
    this.#stageSecs.set(engineUrl, (stages = new Map()));
    if (this.#stageSecs.size > MAX_ENGINES) this.#stageSecs.delete(this.#stageSecs.keys().next().value!);
    return stages;
  }

  counters(engines: EngineTable, gate: Gate): SwapCounters {
    return {
      ended: this.#ended,
      stageSecs: this.#stageSecs,
      swapTimes: this.#times,
      engines: () => engines.countsByPhase(),
      waiting: () => gate.waiting,
      refused: () => gate.refused,
      openSecs: () => (engines.openSinceMs === null ? 0 : (performance.now() - engines.openSinceMs) / 1000),
    };
  }
}
