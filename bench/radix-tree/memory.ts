// A million trajectories in one forest: fails if its memory exceeds the limit at any tenth of them. `npm run
// bench -- radix-memory [inserts]`
import { memoryUsed } from '../../router/test/harness/memory-used.ts';
import { TokenForest } from '../../router/src/recorder/thread/tree/forest.ts';
import { machine } from '../machine.ts';

const inserts = Number(process.argv[2] ?? 1_000_000);
const maxBytes = 100_000_000;
const forest = new TokenForest({ maxNodes: 100_000, maxBytes, keepVersions: 5 });
const root = forest.root('');

let seed = 1;
const random = (below: number): number => (seed = (seed * 48_271) % 2_147_483_647) % below;

const idle = memoryUsed();
const grown: number[] = [];
const startMs = performance.now();
for (let i = 1; i <= inserts; i++) {
  const length = 1 + random(64);
  const ids = Int32Array.from({ length }, (_, at) => (at < 3 ? random(20) : random(50_000)));
  const run = {
    ids,
    spelling: null,
    ends: Uint32Array.from({ length }, (_, at) => (at + 1) * 4),
    text: Buffer.from(ids.buffer.slice(0)),
    logprobs: i % 2 === 0 ? new Float64Array(length).fill(-1) : null,
    isSampled: i % 2 === 0,
  };
  const end = {
    turn: `t${i}`,
    session: `s${i}`,
    owner: forest.session(root, `s${i}`),
    index: 0,
    tokens: length,
    from: 0,
  };
  const line = { hasLogprobs: true, own: null, parent: null, keeps: 0, digest: i, isAmbiguous: false, isCut: false };
  forest.mark(forest.insert({ node: root, at: 0 }, run, 0), 'turn', { ...end, ...line });
  forest.trim();
  if (forest.bytes > maxBytes) throw new Error(`${forest.bytes} bytes after ${i}`);
  if (i % Math.ceil(inserts / 10) !== 0 && i !== inserts) continue;
  grown.push(memoryUsed() - idle);
  if (grown.at(-1)! > maxBytes) throw new Error(`${grown.at(-1)} bytes of memory after ${i}: more than ${maxBytes}`);
}
const micros = ((performance.now() - startMs) * 1000) / inserts;
const mb = (bytes: number): string => (bytes / 1e6).toFixed(1);
process.stdout.write(
  `${machine()}\n${inserts} inserts, ${micros.toFixed(1)} µs each; ${forest.nodes} nodes, ${mb(forest.bytes)} MB by count of ` +
    `${mb(maxBytes)}; ${forest.counts.evictedNodes} went\n` +
    `MB of memory more than at the start, after each tenth: ${grown.map(mb).join(' ')}\n`,
);
