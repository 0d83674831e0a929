import { Session } from 'node:inspector/promises';
import { relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const source = resolve(import.meta.dirname, '../../src');

/** Timers of the router fire now and then: what they use is not used in each run of the work. */
const RUNS = 5;

/** @returns the files of the router, in order of their names, in which a function ran in every run of `work` (V8 coverage) */
export async function filesUsedBy(work: () => Promise<void>): Promise<string[]> {
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  // Counts begin at zero here: what ran before is not reported as run.
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  await session.post('Profiler.takePreciseCoverage');
  const used: Set<string>[] = [];
  while (used.length < RUNS) {
    await work();
    const { result } = await session.post('Profiler.takePreciseCoverage');
    const files = result
      .filter(({ url, functions }) => url.startsWith('file:') && functions.some(({ ranges }) => ranges[0]!.count > 0))
      .map(({ url }) => relative(source, fileURLToPath(url)))
      .filter((file) => !file.startsWith('..'));
    used.push(new Set(files));
  }
  await session.post('Profiler.stopPreciseCoverage');
  session.disconnect();
  return [...used[0]!].filter((file) => used.every((files) => files.has(file))).toSorted();
}
