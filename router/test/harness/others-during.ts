import type { TestContext } from 'node:test';

/** @returns how many other calls of the thread ran during some work, of which each step takes 10 ms */
export async function othersDuring(t: TestContext, work: () => Promise<unknown>): Promise<number> {
  let nowMs = 0;
  t.mock.method(performance, 'now', () => (nowMs += 10));
  let others = 0;
  let isOver = false;
  const other = (): void => {
    others++;
    if (!isOver) setImmediate(other);
  };
  setImmediate(other);
  await work();
  isOver = true;
  return others;
}
