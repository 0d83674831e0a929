// A million trajectories into one forest: memory stays within its limit. `node --expose-gc bench/radix-tree/million.ts [inserts]`
import { TokenForest } from '../../router/src/trajectory/tree/forest.ts';
import { machine } from '../machine.ts';

const inserts = Number(process.argv[2] ?? 1_000_000);
const maxBytes = 100_000_000;
const forest = new TokenForest({ maxNodes: 100_000, maxBytes, keepVersions: 5 });
const root = forest.root('');

let seed = 1;
const random = (below: number): number => (seed = (seed * 48_271) % 2_147_483_647) % below;

const resident = (): number => {
  globalThis.gc?.();
  const { heapUsed, arrayBuffers, external } = process.memoryUsage();
  return heapUsed + Math.max(arrayBuffers, external);
};

const idle = resident();
const startMs = performance.now();
let peakBytes = 0;
for (let i = 1; i <= inserts; i++) {
  const length = 1 + random(64);
  const ids = Int32Array.from({ length }, (_, at) => (at < 3 ? random(20) : random(50_000)));
  const run = {
    ids,
    ends: Uint32Array.from({ length }, (_, at) => (at + 1) * 4),
    text: Buffer.from(ids.buffer.slice(0)),
    logprobs: i % 2 === 0 ? new Float64Array(length).fill(-1) : null,
    isSampled: i % 2 === 0,
  };
  forest.mark(forest.insert({ node: root, at: 0 }, run, 0), 'seen');
  forest.trim();
  if (forest.bytes > maxBytes) throw new Error(`${forest.bytes} bytes after ${i}`);
  if (i % 100_000 === 0) peakBytes = Math.max(peakBytes, resident() - idle);
}
const micros = ((performance.now() - startMs) * 1000) / inserts;
process.stdout.write(
  `${machine()}\n${inserts} inserts, ${micros.toFixed(1)} µs each; ${forest.nodes} nodes, ${(forest.bytes / 1e6).toFixed(1)} MB by ` +
    `count of ${maxBytes / 1e6}, ${(peakBytes / 1e6).toFixed(1)} MB of memory at most; ${forest.counts.evictedNodes} went\n`,
);
