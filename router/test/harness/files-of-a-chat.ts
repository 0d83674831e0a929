import { Session } from 'node:inspector/promises';
import { relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const source = resolve(import.meta.dirname, '../../src');

/** @returns the files of the router, in order of their names, in which a function ran during `work` (V8 coverage) */
export async function filesUsedBy(work: () => Promise<void>): Promise<string[]> {
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  // Counts begin at zero here: what ran before is not reported as run.
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  await session.post('Profiler.takePreciseCoverage');
  await work();
  const { result } = await session.post('Profiler.takePreciseCoverage');
  await session.post('Profiler.stopPreciseCoverage');
  session.disconnect();
  return result
    .filter(({ url, functions }) => url.startsWith('file:') && functions.some(({ ranges }) => ranges[0]!.count > 0))
    .map(({ url }) => relative(source, fileURLToPath(url)))
    .filter((file) => !file.startsWith('..'))
    .toSorted();
}
