import type { TestContext } from 'node:test';

export interface FakeTime {
  /** Runs the timers of so many milliseconds. */
  advance(ms: number): void;
  /** How many timers were set. */
  timersSet(): number;
}

/**
 * The monotonic clock stands still, unless the test moves it: a reused connection that breaks is stale however late that is seen on a busy
 * machine, and after `pass` it is not.
 */
export function stoppedClock(t: TestContext): { pass(ms: number): void } {
  let nowMs = performance.now();
  t.mock.method(performance, 'now', () => nowMs);
  return { pass: (ms) => void (nowMs += ms) };
}

/** The monotonic clock and `setTimeout` go on only when the test says so. */
export function fakeTime(t: TestContext): FakeTime {
  let nowMs = 0;
  t.mock.timers.enable({ apis: ['setTimeout'] });
  t.mock.method(performance, 'now', () => nowMs);
  const { mock } = t.mock.method(globalThis, 'setTimeout');
  return {
    advance(ms) {
      for (let i = 0; i < ms; i++) {
        nowMs++;
        t.mock.timers.tick(1);
      }
    },
    timersSet: () => mock.callCount(),
  };
}
