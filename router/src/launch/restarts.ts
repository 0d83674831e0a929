import { backoff } from '../kit/backoff.ts';

export interface RestartRules {
  readonly firstMs: number;
  readonly maxMs: number;
  /** An engine that served this long is reliable: its next exit is the first of a new series. */
  readonly soundMs: number;
  /** The longest time from the first exit of a series to the next restart. */
  readonly giveUpMs: number;
}

/** @returns called when an engine has exited: the delay of its restart; null: no restart */
export function restarts({ firstMs, maxMs, soundMs, giveUpMs }: RestartRules) {
  let deaths = 0;
  let firstDeathMs = 0;
  return (nowMs: number, servedMs: number): number | null => {
    if (servedMs >= soundMs) deaths = 0;
    if (deaths++ === 0) firstDeathMs = nowMs;
    const waitMs = backoff(deaths, firstMs, maxMs);
    return nowMs + waitMs - firstDeathMs > giveUpMs ? null : waitMs;
  };
}
