import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import type { Cell, CellResult } from './grid.ts';

/** Runs the cells on this many threads. @returns results in the order of the cells */
export async function runCells(
  cells: readonly Cell[],
  jobs: number,
  onResult: (result: CellResult) => void,
): Promise<CellResult[]> {
  const results: CellResult[] = [];
  let next = 0;
  const drain = async (): Promise<void> => {
    const worker = new Worker(new URL('worker.ts', import.meta.url));
    try {
      while (next < cells.length) {
        const place = next++;
        const answer = once(worker, 'message'); // rejects when the thread fails
        worker.postMessage(cells[place], []);
        const [result] = (await answer) as [CellResult];
        results[place] = result;
        onResult(result);
      }
    } finally {
      await worker.terminate();
    }
  };
  await Promise.all(Array.from({ length: Math.min(jobs, cells.length) }, drain));
  return results;
}
