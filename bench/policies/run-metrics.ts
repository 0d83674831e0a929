import type { EngineTotals } from './engine.ts';
import type { StreamMetrics } from './stream-meter.ts';

/** The results of a run. Times in seconds. */
export interface RunMetrics {
  /** From the start to the last response; the length of the run for a stream. */
  readonly makespan: number;
  /** Share of the prompt tokens found in a prefix cache. */
  readonly hitShare: number;
  /** Time to first token, from the client's send, including the wait in the router. */
  readonly ttftP50: number;
  readonly ttftP99: number;
  /** From the client's send to the last token. */
  readonly meanEndToEnd: number;
  /** Share of engines x makespan in which an engine computed nothing. */
  readonly idleShare: number;
  /** Prompt tokens computed, and those of them that a preemption had dropped. */
  readonly prefilledTokens: number;
  readonly recomputedTokens: number;
  readonly promptTokens: number;
  readonly preemptions: number;
  /** Requests finished. */
  readonly requests: number;
  /** Requests sent again because their engine failed. */
  readonly retries: number;
  /** Responses that continued on another engine (`rebalance.ts`). */
  readonly moves: number;
  /** Longest wait of a request in the router, of those that wait at the end too. */
  readonly longestHold: number;
  /** Null for a batch. */
  readonly stream: StreamMetrics | null;
}

/** Latencies of the finished requests, in seconds. */
export class Latencies {
  readonly firstToken: number[] = [];
  endToEndSum = 0;

  add(firstToken: number, endToEnd: number): void {
    this.firstToken.push(firstToken);
    this.endToEndSum += endToEnd;
  }
}

export interface RunRecord {
  readonly totals: readonly EngineTotals[];
  readonly latencies: Latencies;
  /** Seconds. */
  readonly makespan: number;
  readonly retries: number;
  readonly moves: number;
  readonly longestHold: number;
  readonly stream: StreamMetrics | null;
}

export function summarise({ totals, latencies, makespan, retries, moves, longestHold, stream }: RunRecord): RunMetrics {
  const sum = (field: keyof EngineTotals): number => totals.reduce((total, engine) => total + engine[field], 0);
  const sorted = Float64Array.from(latencies.firstToken).sort();
  const requests = sorted.length;
  return {
    makespan,
    hitShare: sum('hitTokens') / Math.max(1, sum('promptTokens')),
    ttftP50: sorted[Math.floor(requests / 2)] ?? 0,
    ttftP99: sorted[Math.floor(requests * 0.99)] ?? 0,
    meanEndToEnd: latencies.endToEndSum / Math.max(1, requests),
    idleShare: 1 - sum('busySeconds') / (totals.length * makespan),
    prefilledTokens: sum('prefilledTokens'),
    recomputedTokens: sum('recomputedTokens'),
    promptTokens: sum('promptTokens'),
    preemptions: sum('preemptions'),
    requests,
    retries,
    moves,
    longestHold,
    stream,
  };
}
