// The row `radix-2k` of the benchmark by itself. `node bench/radix-tree/run.ts [requests] [rounds]`
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { machine } from '../machine.ts';
import { measureRadix, median, overPlain, radixTarget } from './measure.ts';

const requests = Number(process.argv[2] ?? 20_000);
const rounds = Number(process.argv[3] ?? 5);
const folder = mkdtempSync(join(tmpdir(), 'turnout-bench-'));
try {
  const result = await measureRadix({ requests, rounds, folder, say: () => {} });
  process.stdout.write(
    `${machine()}\n${requests} requests, median of ${rounds} rounds, µs of CPU a request (all threads)\n`,
  );
  for (const { name, micros } of [result.plain, result.tree, result.text]) {
    const all = micros.map((one) => one.toFixed(0)).join(' ');
    process.stdout.write(`  ${name.padEnd(30)} ${median(micros).toFixed(1)}  (${all})\n`);
  }
  const more = overPlain(result);
  process.stdout.write(
    `  the tree's own: ${more.toFixed(1)} µs, target at most ${radixTarget}: ${more <= radixTarget ? 'met' : 'missed'}\n`,
  );
} finally {
  rmSync(folder, { recursive: true });
}
