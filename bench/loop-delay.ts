// Loaded into a Node process with --import: SIGUSR2 writes the delay of its event loop since the last signal, and
// starts again.
import { renameSync, writeFileSync } from 'node:fs';
import { monitorEventLoopDelay } from 'node:perf_hooks';

const RESOLUTION_MS = 10;

const file = process.env['TURNOUT_BENCH_LOOP_FILE'];
const histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
histogram.enable();
process.on('SIGUSR2', () => {
  // The histogram has the time between two checks, which is this long without delay.
  const lateMs = (ns: number): number => Math.max(0, ns / 1e6 - RESOLUTION_MS);
  const p99Ms = lateMs(histogram.percentile(99));
  const p999Ms = lateMs(histogram.percentile(99.9));
  const said = { p99Ms, p999Ms, maxMs: lateMs(histogram.max) };
  histogram.reset();
  if (file === undefined) return;
  writeFileSync(`${file}.new`, JSON.stringify(said));
  renameSync(`${file}.new`, file);
});
