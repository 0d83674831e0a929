import type { TestContext } from 'node:test';

/**
 * A test of a short limit, which runs again if it fails after this process stood still for a third of the limit. What exceeds the limit should
 * fail it at once.
 */
export function undisturbed(limitMs: number, run: (t: TestContext) => Promise<void>) {
  return async (t: TestContext): Promise<void> => {
    for (;;) {
      let longestMs = 0;
      let lastMs = performance.now();
      const look = (): void => {
        const nowMs = performance.now();
        longestMs = Math.max(longestMs, nowMs - lastMs);
        lastMs = nowMs;
      };
      const timer = setInterval(look, 5);
      try {
        await run(t);
        return;
      } catch (error) {
        look();
        if (longestMs < limitMs / 3) throw error;
      } finally {
        clearInterval(timer);
      }
    }
  };
}
