import type { SwapRow } from '../../../router/src/admin/dashboard/protocol.ts';

/** Stages in the order in which an engine passes them. */
export const stages = ['gate', 'drain', 'pause', 'load', 'label', 'resume'] as const;
export type Stage = (typeof stages)[number];

/** A stage of one engine's swap. */
export interface Bar {
  readonly stage: Stage;
  /** Unix ms. */
  readonly from: number;
  readonly to: number;
  readonly isRunning: boolean;
}

/** When each stage began and ended. @param now Unix ms; where a running stage ends for now */
export function barsOf({ phases_ms, began_at, started_at, stage, ended_at }: SwapRow, now: number): Bar[] {
  let at = began_at ?? started_at;
  const bars: Bar[] = [];
  for (const name of stages) {
    const ms = phases_ms[name];
    if (ms === undefined) continue;
    bars.push({ stage: name, from: at, to: at + ms, isRunning: false });
    at += ms;
  }
  const running = stages.find((name) => name === stage);
  if (running !== undefined && ended_at === null)
    bars.push({ stage: running, from: at, to: Math.max(at, now), isRunning: true });
  return bars;
}

/** The time that the rows of a swap take. */
export function spanOf(rows: readonly SwapRow[], now: number): { readonly from: number; readonly to: number } {
  const bars = rows.flatMap((row) => barsOf(row, now));
  const from = Math.min(...bars.map((bar) => bar.from));
  const to = Math.max(...bars.map((bar) => bar.to), from + 1);
  return Number.isFinite(from) ? { from, to } : { from: now - 1, to: now };
}
