/**
 * A simulated engine as a separate process: `node process.ts '{"timeScale":0}'`. Prints a line {"url":..., "pid":...}
 * when it listens, and ends when its stdin closes, so that it ends with the process that started it.
 */

import { startSimEngine } from './engine.ts';
import type { SimOptions } from './sim-options.ts';

const options = JSON.parse(process.argv[2] ?? '{}') as Partial<SimOptions>;
const engine = await startSimEngine(options).catch((error: NodeJS.ErrnoException) => {
  // A used address is the user's to change, so it is reported without a stack trace.
  if (error.syscall !== 'listen') throw error;
  process.stdout.write(`${JSON.stringify({ error: error.code })}\n`);
  process.exit(1);
});
process.stdout.write(`${JSON.stringify({ url: engine.url, pid: engine.pid })}\n`);
process.stdin.resume();
process.stdin.on('error', () => process.exit(0));
process.stdin.on('close', () => process.exit(0));
process.on('SIGTERM', () => process.exit(0));
