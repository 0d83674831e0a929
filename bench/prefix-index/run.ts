// npm run bench -- prefix-index: block index compared with a radix tree: time per request, memory, and blocks of the
// event loop.
import { spawnSync } from 'node:child_process';
import { PerformanceObserver, performance } from 'node:perf_hooks';
import { setImmediate as nextRound } from 'node:timers/promises';
import { PrefixIndex } from '../../router/src/choose/prefix-index/prefix-index.ts';
import { hashBlocks } from '../../router/src/kit/block-hash.ts';
import { seededRandom } from '../../router/src/kit/rng.ts';
import { RadixTree } from './radix-tree.ts';

type Kind = 'blocks' | 'radix';

/** What a policy does with a prompt: match it for all workers, then insert it for one. */
interface Contender {
  /** @returns what `insert` can reuse */
  match(prompt: Buffer): Uint32Array | null;
  insert(worker: number, prompt: Buffer, hashes: Uint32Array | null): void;
}

const random = seededRandom(1);
const letters = Buffer.from('etaoin shrdlu cmfwypvbgkjqxz, ETAOIN "1234567890" .:\n');

function text(bytes: number): Buffer {
  const made = Buffer.allocUnsafe(bytes);
  for (let i = 0; i < bytes; i++) made[i] = letters[Math.floor(random() * letters.length)]!;
  return made;
}

function contender(kind: Kind, workers: number, maxBlocks = 1_000_000): Contender {
  const matched = new Int32Array(workers);
  if (kind === 'radix') {
    const tree = new RadixTree();
    return {
      match(prompt) {
        tree.match(prompt, matched);
        return null;
      },
      insert: (worker, prompt) => tree.insert(worker, prompt),
    };
  }
  const index = new PrefixIndex(maxBlocks);
  return {
    match(prompt) {
      const hashes = hashBlocks(prompt, 0, prompt.length);
      for (let worker = 0; worker < workers; worker++) matched[worker] = index.match(worker, hashes);
      return hashes;
    },
    insert: (worker, _, hashes) => index.insert(worker, hashes!),
  };
}

/** A workload has its prompts in order and the worker of each. The first half is for warm-up. */
interface Workload {
  readonly name: string;
  readonly requests: (workers: number) => { prompt: Buffer; worker: number }[];
}

function fresh(count: number, bytes: number, shared: Buffer): Workload['requests'] {
  return (workers) =>
    Array.from({ length: count }, (_, i) => ({
      prompt: Buffer.concat([shared, text(bytes)]),
      worker: (i * 7) % workers,
    }));
}

/** Trajectories that grow from turn to turn, in turn, each on its own worker. */
function growing(trajectories: number, turns: number, bytesPerTurn: number): Workload['requests'] {
  return (workers) => {
    const whole = Array.from({ length: trajectories }, () => text(turns * bytesPerTurn));
    return Array.from({ length: turns * trajectories }, (_, i) => ({
      prompt: whole[i % trajectories]!.subarray(0, (Math.floor(i / trajectories) + 1) * bytesPerTurn),
      worker: (i % trajectories) % workers,
    }));
  };
}

const nothing = Buffer.alloc(0);
const system = text(8_192);
const workloads: Workload[] = [
  { name: '2 KB, fresh', requests: fresh(6_000, 2_048, nothing) },
  { name: '200 KB, fresh', requests: fresh(300, 204_800, nothing) },
  { name: '8 KB shared + 2 KB fresh', requests: fresh(6_000, 2_048, system) },
  { name: '2 KB a turn, 16 turns', requests: growing(250, 16, 2_048) },
  { name: '20 KB a turn, 10 turns', requests: growing(40, 10, 20_480) },
];

interface Times {
  readonly match: number;
  readonly insert: number;
}

/** The least of three runs, because disturbances only add time. */
function measure(kind: Kind, workload: Workload, workers: number): Times {
  const runs = Array.from({ length: 3 }, () => measureOnce(kind, workload, workers));
  return { match: Math.min(...runs.map((run) => run.match)), insert: Math.min(...runs.map((run) => run.insert)) };
}

function measureOnce(kind: Kind, workload: Workload, workers: number): Times {
  const requests = workload.requests(workers);
  const tested = contender(kind, workers);
  const match: number[] = [];
  const insert: number[] = [];
  for (const { prompt, worker } of requests) {
    const start = performance.now();
    const hashes = tested.match(prompt);
    const matched = performance.now();
    tested.insert(worker, prompt, hashes);
    insert.push(performance.now() - matched);
    match.push(matched - start);
  }
  return { match: medianMicros(match), insert: medianMicros(insert) };
}

/** The median of the second half. Other work on the machine and pauses affect few requests. */
function medianMicros(times: number[]): number {
  const counted = times.slice(times.length / 2).toSorted((a, b) => a - b);
  return counted[Math.floor(counted.length / 2)]! * 1_000;
}

interface Filled {
  megabytes: number;
  residentMegabytes: number;
  blocks: number;
  worstGcMs: number;
  gcMs: number;
  worstStallMs: number;
}

/** Fills one contender in a separate process: its memory in the end, and the blocks of the event loop. */
async function fill(kind: Kind, prompts: number, bytes: number): Promise<Filled> {
  // Room for 2^20 blocks of 64 bytes; the same for the tree, in bytes per worker.
  const workers = 64;
  const maxBytes = bytes === 2_048 ? (2 ** 20 * 64) / workers : Infinity;
  const pauses: number[] = [];
  const observer = new PerformanceObserver((list) => pauses.push(...list.getEntries().map((entry) => entry.duration)));
  const source = text(4_000_000);
  const collect = globalThis.gc!;
  collect();
  await nextRound();
  const before = process.memoryUsage();
  const filled = kind === 'blocks' ? new PrefixIndex(2 ** 20) : new RadixTree();
  observer.observe({ entryTypes: ['gc'] });
  let worstStallMs = 0;
  for (let i = 0; i < prompts; i++) {
    const start = performance.now();
    const prompt = Buffer.from(source.subarray((i * 4_099) % 3_900_000, ((i * 4_099) % 3_900_000) + bytes));
    // Differs from every other one from the first byte on.
    prompt.writeUInt32LE(Math.imul(i + 1, 0x9e3779b1) >>> 0, 0);
    if (filled instanceof RadixTree) {
      filled.insert(i % workers, prompt);
      // Evicting walks the worker's part of the tree, so it is done rarely: at a sixteenth over the limit.
      if (filled.bytes(i % workers) > maxBytes * (17 / 16)) filled.evict(i % workers, maxBytes);
    } else {
      filled.insert(i % workers, hashBlocks(prompt, 0, bytes));
    }
    if (i % 8 === 0) await nextRound();
    worstStallMs = Math.max(worstStallMs, performance.now() - start);
  }
  await nextRound();
  observer.disconnect();
  collect();
  await nextRound();
  const after = process.memoryUsage();
  const grown = after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers;
  return {
    // The source is still in memory, as it was before.
    megabytes: (grown + source.length - 4_000_000) / 1e6,
    residentMegabytes: (after.rss - before.rss) / 1e6,
    blocks: filled instanceof PrefixIndex ? filled.size : 0,
    worstGcMs: Math.max(0, ...pauses),
    gcMs: pauses.reduce((sum, each) => sum + each, 0),
    worstStallMs,
  };
}

function filledApart(kind: Kind, prompts: number, bytes: number): Filled {
  const args = ['--expose-gc', import.meta.filename, '--fill', kind, String(prompts), String(bytes)];
  const { stdout, stderr, status } = spawnSync(process.execPath, args, { encoding: 'utf8', timeout: 60_000 });
  if (status !== 0) throw new Error(`filling ${kind} failed: ${stderr}`);
  return JSON.parse(stdout) as Filled;
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

function table(head: string[], rows: (string | number)[][]): void {
  print(`| ${head.join(' | ')} |`);
  print(`|${' --- |'.repeat(head.length)}`);
  for (const row of rows) print(`| ${row.map((v) => (typeof v === 'number' ? v.toFixed(1) : v)).join(' | ')} |`);
  print('');
}

function hashTimes(): void {
  table(
    ['hashing a prompt of', 'µs'],
    [2_048, 8_192, 204_800].map((bytes) => {
      const prompt = text(bytes + 8);
      const rounds = Math.ceil(40_000_000 / bytes / 5);
      let best = Infinity;
      for (let run = 0; run < 5; run++) {
        const start = performance.now();
        for (let i = 0; i < rounds; i++) hashBlocks(prompt, i & 7, (i & 7) + bytes);
        best = Math.min(best, (performance.now() - start) / rounds);
      }
      return [`${bytes / 1_024} KB`, best * 1_000];
    }),
  );
}

function dropTimes(): void {
  const start = performance.now();
  const index = new PrefixIndex(2 ** 20);
  const made = performance.now();
  for (let i = 0; i < 1_000; i++) {
    index.insert(
      i % 2,
      Uint32Array.from({ length: 500 }, () => random() * 2 ** 32),
    );
  }
  const rows = [['room for 2^20 blocks', made - start] as [string, number]];
  const blocks = index.blocks(0);
  const before = performance.now();
  index.drop(0);
  rows.push([`dropping a worker of ${blocks} blocks`, performance.now() - before]);
  table(['once', 'ms'], rows);
}

function main(): void {
  print(`Node ${process.version}, ${process.platform} ${process.arch}\n`);
  hashTimes();
  dropTimes();
  const rows = workloads.flatMap((workload) =>
    [8, 64].map((workers) => {
      const blocks = measure('blocks', workload, workers);
      const radix = measure('radix', workload, workers);
      return [workload.name, String(workers), blocks.match, blocks.insert, radix.match, radix.insert];
    }),
  );
  const head = ['median µs per request', 'workers', 'blocks: hash + match all', 'insert', 'radix: match all', 'insert'];
  table(head, rows);
  const fills: [string, Kind, number, number][] = [
    ['10,000 × 8 KB', 'blocks', 10_000, 8_192],
    ['10,000 × 8 KB', 'radix', 10_000, 8_192],
    ['1,048,576 blocks (32,768 × 2 KB)', 'blocks', 32_768, 2_048],
    ['the same prompts', 'radix', 32_768, 2_048],
    ['five times that (163,840 × 2 KB), the oldest evicted', 'blocks', 163_840, 2_048],
    ['the same prompts, the oldest evicted', 'radix', 163_840, 2_048],
  ];
  table(
    ['filling', 'with', 'MB held', 'RSS grown by MB', 'worst GC pause ms', 'all GC ms', 'worst loop stall ms'],
    fills.map(([name, kind, prompts, bytes]) => {
      const { megabytes, residentMegabytes, worstGcMs, gcMs, worstStallMs } = filledApart(kind, prompts, bytes);
      return [name, kind, megabytes, residentMegabytes, worstGcMs, gcMs, worstStallMs];
    }),
  );
}

const [mode, kind, prompts, bytes] = process.argv.slice(2);
if (mode === '--fill') print(JSON.stringify(await fill(kind as Kind, Number(prompts), Number(bytes))));
else main();
