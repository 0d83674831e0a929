/**
 * A simulated engine as a process of its own: `node process.ts '{"timeScale":0}'`. Prints one line {"url":..., "pid":...}
 * when it listens, and ends when its stdin closes, so that it can't outlive whoever started it.
 */

import { startSimEngine } from './engine.ts';
import type { SimOptions } from './sim-options.ts';

const options = JSON.parse(process.argv[2] ?? '{}') as Partial<SimOptions>;
const engine = await startSimEngine(options).catch((error: NodeJS.ErrnoException) => {
  // An address that is taken is the user's to change, not a fault with a stack trace.
  if (error.syscall !== 'listen') throw error;
  process.stdout.write(`${JSON.stringify({ error: error.code })}\n`);
  process.exit(1);
});
process.stdout.write(`${JSON.stringify({ url: engine.url, pid: engine.pid })}\n`);
process.stdin.resume();
process.stdin.on('error', () => process.exit(0));
process.stdin.on('close', () => process.exit(0));
process.on('SIGTERM', () => process.exit(0));
