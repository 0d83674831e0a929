import type { TestContext } from 'node:test';

export interface FakeTime {
  /** Runs the timers of so many milliseconds. */
  advance(ms: number): void;
  /** How many timers were set. */
  timersSet(): number;
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
