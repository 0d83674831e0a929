// A thread of the grid: one message with a cell in, one with its result out.
import { parentPort } from 'node:worker_threads';
import { runCell, type Cell } from './grid.ts';

parentPort?.on('message', (cell: Cell) => parentPort?.postMessage(runCell(cell), []));
