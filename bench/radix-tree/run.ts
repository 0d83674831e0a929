// The row `radix-2k` of the benchmark by itself. `npm run bench -- radix-tree [requests] [rounds]`
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { machine } from '../machine.ts';
import { median } from '../median.ts';
import { loopOverPlain, loopTarget, measureRadix, overPlain, radixTarget } from './measure.ts';

const requests = Number(process.argv[2] ?? 20_000);
const rounds = Number(process.argv[3] ?? 5);
const folder = mkdtempSync(join(tmpdir(), 'turnout-bench-'));
try {
  const result = await measureRadix({ requests, rounds, folder, say: () => {} });
  process.stdout.write(
    `${machine()}\n${requests} requests, median of ${rounds} rounds, µs of CPU a request (all threads)\n`,
  );
  for (const { name, micros, loopMicros } of [result.plain, result.tree, result.text]) {
    const all = micros.map((one) => one.toFixed(0)).join(' ');
    const loop = median(loopMicros).toFixed(1);
    process.stdout.write(`  ${name.padEnd(30)} ${median(micros).toFixed(1)}  (${all}), event loop ${loop}\n`);
  }
  for (const [what, more, target] of [
    ['all threads', overPlain(result), radixTarget],
    ['event loop', loopOverPlain(result), loopTarget],
  ] as const) {
    const isMet = more <= target ? 'met' : 'missed';
    process.stdout.write(`  over the plain path, ${what}: ${more.toFixed(1)} µs, target at most ${target}: ${isMet}\n`);
  }
} finally {
  rmSync(folder, { recursive: true });
}
