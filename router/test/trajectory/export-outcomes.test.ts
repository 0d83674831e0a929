import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { parquetReadObjects } from 'hyparquet';
import type { ExportFormat } from '../../src/recorder/shared/export-formats.ts';
import { exportBytes } from '../../src/recorder/thread/export/formats.ts';
import { noProgress } from '../../src/recorder/thread/export/walk.ts';
import type { TrajectoryStore } from '../../src/recorder/thread/store/store.ts';
import { MemoryStore } from '../../src/recorder/thread/store/memory.ts';
import { SqliteStore } from '../../src/recorder/thread/store/sqlite.ts';
import { turnout } from '../cli/turnout.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { turnOf } from '../harness/turns.ts';

interface Exported {
  readonly session: string;
  readonly finished: boolean;
  readonly finished_at_ms: number | null;
  readonly reward: number | null;
  readonly labels: string[];
}

const EXPECTED: Exported[] = [
  { session: 'won', finished: true, finished_at_ms: 5, reward: 1, labels: ['math', 'split=ü'] },
  { session: 'lost', finished: true, finished_at_ms: 6, reward: -0.125, labels: ['math'] },
  { session: 'over', finished: true, finished_at_ms: 7, reward: null, labels: [] },
  { session: 'open', finished: false, finished_at_ms: null, reward: null, labels: [] },
];

async function fill(store: TrajectoryStore): Promise<void> {
  await store.put(EXPECTED.map(({ session }) => turnOf({ session })));
  for (const { session, finished_at_ms: at, reward, labels } of EXPECTED)
    if (at !== null) await store.finish({ session }, { reward, labels }, at);
}

async function exported(format: ExportFormat): Promise<Buffer> {
  const store = new MemoryStore(1e9);
  await fill(store);
  const pieces: Uint8Array[] = [];
  for await (const piece of await exportBytes(store, { format, query: {}, dataDir: null }, noProgress()))
    pieces.push(piece);
  return Buffer.concat(pieces);
}

const outcomes = (rows: readonly unknown[]): Exported[] =>
  (rows as readonly Exported[]).map(({ session, finished, finished_at_ms, reward, labels }) => {
    return { session, finished, finished_at_ms, reward, labels };
  });

const linesOf = (text: string): Exported[] =>
  text
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as Exported);

test('jsonl: each trajectory has the outcome of its session', async () => {
  assert.deepEqual(outcomes(linesOf((await exported('jsonl')).toString())), EXPECTED);
});

test('parquet: each trajectory has the outcome of its session', async (t) => {
  const bytes = await exported('parquet');
  const file = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length) as ArrayBuffer;
  assert.deepEqual(outcomes(await parquetReadObjects({ file })), EXPECTED);
  const python = process.env['TURNOUT_PYARROW_PYTHON'] ?? 'python3';
  if (spawnSync(python, ['-c', 'import pyarrow']).status !== 0) {
    t.diagnostic('no Python with pyarrow: not read by it');
    return;
  }
  const path = join(temporaryFolder(t), 'out.parquet');
  writeFileSync(path, bytes);
  const script = 'import json, sys, pyarrow.parquet as pq; print(json.dumps(pq.read_table(sys.argv[1]).to_pylist()))';
  const { stdout, stderr } = spawnSync(python, ['-c', script, path], { encoding: 'utf8' });
  assert.deepEqual(outcomes(JSON.parse(stdout || '[]') as unknown[]), EXPECTED, stderr);
});

test('safetensors: the metadata of each trajectory has the outcome of its session', async () => {
  const bytes = await exported('safetensors');
  const head = 8 + Number(bytes.readBigUInt64LE(0));
  const { meta } = JSON.parse(bytes.toString('utf8', 8, head)) as { meta: { data_offsets: [number, number] } };
  const [from, to] = meta.data_offsets;
  assert.deepEqual(outcomes(JSON.parse(bytes.toString('utf8', head + from, head + to)) as unknown[]), EXPECTED);
});

test('turnout export takes sessions by how they ended', async (t) => {
  const dataDir = temporaryFolder(t);
  const store = new SqliteStore(dataDir);
  await fill(store);
  store.close();
  const run = async (...flags: string[]) => {
    const { ended, output } = turnout(t, ['export', '--format', 'jsonl', '--data-dir', dataDir, ...flags]);
    return { code: await ended, output };
  };
  const cases: [string[], string[]][] = [
    [['--finished'], ['won', 'lost', 'over']],
    [['--unfinished'], ['open']],
    [['--min-reward', '0'], ['won']],
    [['--max-reward', '0'], ['lost']],
    [['--min-reward=-1', '--max-reward', '1', '--label', 'split=ü'], ['won']],
    [
      ['--label', 'math'],
      ['won', 'lost'],
    ],
  ];
  for (const [flags, sessions] of cases) {
    const { code, output } = await run(...flags);
    assert.equal(code, 0, output());
    assert.deepEqual(
      linesOf(output()).map(({ session }) => session),
      sessions,
      flags.join(' '),
    );
  }
  const wrong: [string[], RegExp][] = [
    [['--min-reward', 'high'], /--min-reward high: a number/],
    [['--finished', '--unfinished'], /--finished and --unfinished: no session is both/],
  ];
  for (const [flags, words] of wrong) {
    const { code, output } = await run(...flags);
    assert.equal(code, 2);
    assert.match(output(), words);
  }
});
