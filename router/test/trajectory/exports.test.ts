import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { globSync, mkdirSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from '../harness/fast-check.ts';
import { parquetMetadata, parquetReadObjects } from 'hyparquet';
import type { ExportFormat } from '../../src/recorder/shared/export-formats.ts';
import { exportCalls } from '../../src/recorder/thread/export/export-calls.ts';
import { exportBytes } from '../../src/recorder/thread/export/formats.ts';
import { assemble } from '../../src/recorder/thread/export/trajectory.ts';
import { type ExportQuery, noProgress } from '../../src/recorder/thread/export/walk.ts';
import { MemoryStore } from '../../src/recorder/thread/store/memory.ts';
import type { Turn } from '../../src/recorder/shared/turn.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { turnOf } from '../harness/turns.ts';

async function exported(store: MemoryStore, format: ExportFormat, query: ExportQuery = {}, dataDir = '') {
  const pieces: Uint8Array[] = [];
  const progress = noProgress();
  for await (const piece of await exportBytes(store, { format, query, dataDir }, progress)) pieces.push(piece);
  return { bytes: Buffer.concat(pieces), progress };
}

interface Line {
  readonly id: string;
  readonly session: string;
  readonly group: string;
  readonly tokens: number[];
  readonly loss_mask: number[];
  readonly rollout_log_probs: number[];
  readonly versions: unknown[];
  readonly turns: Record<string, unknown>[];
}

async function lines(store: MemoryStore, query: ExportQuery = {}): Promise<Line[]> {
  const { bytes } = await exported(store, 'jsonl', query);
  return bytes
    .toString()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line);
}

const tokens = (turn: { ids: number[]; sampledFrom: number }) => ({
  ids: Int32Array.from(turn.ids),
  logprobs: Float64Array.from(turn.ids, (id, i) => (i < turn.sampledFrom ? 0 : -id / 7)),
  mask: Uint8Array.from(turn.ids, (_, i) => (i < turn.sampledFrom ? 0 : 1)),
  versions: [{ version: '1', from: turn.sampledFrom, to: turn.ids.length }],
});

/** Two turns, then two branches: one from the end, one that goes back into the middle of the second turn. */
function branching(session = 'branching'): { store: MemoryStore; turns: Turn[] } {
  const first = turnOf({ session, group: 'g', ...tokens({ ids: [1, 2, 3, 4], sampledFrom: 2 }) });
  const second = turnOf({ session, parent: first.id, keeps: 4, ...tokens({ ids: [5, 6, 7, 8], sampledFrom: 1 }) });
  const third = turnOf({
    session,
    parent: second.id,
    keeps: 8,
    ...tokens({ ids: [9, 10], sampledFrom: 1 }),
    versions: [{ version: '2', from: 1, to: 2 }],
    request: Buffer.from('{"seed":12345678901234567890}'),
    answer: Buffer.from([0xff]),
  });
  const aside = turnOf({ session, parent: second.id, keeps: 6, ...tokens({ ids: [11, 12], sampledFrom: 1 }) });
  const store = new MemoryStore(1e9);
  store.put([first, second, third, aside]);
  return { store, turns: [first, second, third, aside] };
}

test('a turn that another one shares only a beginning with ends a trajectory of its own', async () => {
  const session = 's';
  const first = turnOf({ session, finishReason: 'length', ...tokens({ ids: [1, 2, 3, 4], sampledFrom: 2 }) });
  const aside = turnOf({ session, parent: first.id, keeps: 1, ...tokens({ ids: [7, 8], sampledFrom: 1 }) });
  const stopped = turnOf({ session, finishReason: 'stop', ...tokens({ ids: [5, 6, 0], sampledFrom: 1 }) });
  const without = turnOf({ session, parent: stopped.id, keeps: 2, ...tokens({ ids: [9], sampledFrom: 0 }) });
  const store = new MemoryStore(1e9);
  store.put([first, aside, stopped, without]);
  assert.deepEqual(
    (await lines(store)).map((line) => line.tokens),
    [
      [1, 2, 3, 4],
      [1, 7, 8],
      [5, 6, 9],
    ],
  );
});

for (const finishReason of ['stop', 'tool_calls', null]) {
  test(`a turn that leaves out the stop token before it goes on from that turn: finish reason ${finishReason}`, async () => {
    const common = { session: 's', finishReason };
    const first = turnOf({ ...common, ...tokens({ ids: [1, 2, 0], sampledFrom: 1 }) });
    const second = turnOf({ ...common, parent: first.id, keeps: 2, ...tokens({ ids: [3, 4, 0], sampledFrom: 1 }) });
    const third = turnOf({ ...common, parent: second.id, keeps: 4, ...tokens({ ids: [5, 6, 0], sampledFrom: 1 }) });
    const store = new MemoryStore(1e9);
    store.put([first, second, third]);
    const found = await lines(store);
    assert.deepEqual(
      found.map((line) => [line.tokens, line.loss_mask]),
      [
        [
          [1, 2, 3, 4, 5, 6, 0],
          [0, 1, 0, 1, 0, 1, 1],
        ],
      ],
    );
  });
}

test('a turn that leaves out the last token of one that was cut short does not go on from that turn', async () => {
  for (const finishReason of ['length', 'abort']) {
    const first = turnOf({ session: 's', finishReason, ...tokens({ ids: [1, 2, 3], sampledFrom: 1 }) });
    const second = turnOf({ session: 's', parent: first.id, keeps: 2, ...tokens({ ids: [4], sampledFrom: 0 }) });
    const store = new MemoryStore(1e9);
    store.put([first, second]);
    assert.deepEqual(
      (await lines(store)).map((line) => line.tokens),
      [
        [1, 2, 3],
        [1, 2, 4],
      ],
    );
  }
});

test('each end of a tree of turns is a trajectory, whole from its beginning', async () => {
  const { store, turns } = branching();
  const [long, short] = await lines(store);
  assert.deepEqual(long?.tokens, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  assert.deepEqual(long.loss_mask, [0, 0, 1, 1, 0, 1, 1, 1, 0, 1]);
  assert.deepEqual(long.rollout_log_probs, [0, 0, -3 / 7, -4 / 7, 0, -6 / 7, -1, -8 / 7, 0, -10 / 7]);
  assert.deepEqual(long.versions, [
    { version: '1', from: 2, to: 4 },
    { version: '1', from: 5, to: 8 },
    { version: '2', from: 9, to: 10 },
  ]);
  assert.equal(long.turns[2]?.['request'], '{"seed":12345678901234567890}', 'digits are kept');
  assert.equal(long.turns[2]?.['answer_base64'], '/w==');
  assert.deepEqual(short?.tokens, [1, 2, 3, 4, 5, 6, 11, 12]);
  assert.deepEqual(short.loss_mask, [0, 0, 1, 1, 0, 1, 0, 1]);
  assert.deepEqual(short.versions[1], { version: '1', from: 5, to: 6 }, 'cut where the branch leaves');
  assert.deepEqual(
    short.turns.map(({ id }) => id),
    [turns[0]!.id, turns[1]!.id, turns[3]!.id],
  );
});

test('any tree of turns is exported as a naive reading of it says', async () => {
  const shape = fc.record({
    parent: fc.nat(),
    keep: fc.nat(),
    ids: fc.array(fc.integer({ min: 0, max: 1e6 }), { maxLength: 6 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(shape, { minLength: 1, maxLength: 12 }), async (shapes) => {
      const whole = new Map<string, number[]>();
      const turns: Turn[] = [];
      for (const { parent, keep, ids } of shapes) {
        const from = turns.length === 0 ? undefined : turns[parent % (turns.length + 1)];
        const before = from === undefined ? [] : whole.get(from.id)!;
        const keeps = before.length === 0 ? 0 : keep % (before.length + 1);
        const turn = turnOf({ parent: from?.id ?? null, keeps, ...tokens({ ids, sampledFrom: 0 }) });
        whole.set(turn.id, [...before.slice(0, keeps), ...ids]);
        turns.push(turn);
      }
      const store = new MemoryStore(1e9);
      store.put(turns);
      const ends = turns.filter((turn) => {
        const end = turn.keeps + turn.ids.length - (turn.finishReason === 'stop' ? 1 : 0);
        return !turns.some(({ parent, keeps }) => parent === turn.id && keeps >= end);
      });
      const found = await lines(store);
      assert.deepEqual(
        found.map((line) => [line.id, line.tokens, line.rollout_log_probs]),
        ends.map(({ id }) => [id, whole.get(id), whole.get(id)!.map((token) => (token === 0 ? 0 : -token / 7))]),
      );
    }),
  );
});

test('an export can be narrowed to what one asks for', async () => {
  const { store } = branching('a');
  store.put([turnOf({ session: 'b', group: 'other', startedAtMs: 5 }), turnOf({ session: 'a', tenant: 't' })]);
  const sessions = async (query: ExportQuery) => (await lines(store, query)).map(({ session }) => session);
  assert.deepEqual(await sessions({}), ['a', 'a', 'b', 'a']);
  assert.deepEqual(await sessions({ session: 'b' }), ['b']);
  assert.deepEqual(await sessions({ group: 'g' }), ['a', 'a']);
  assert.deepEqual(await sessions({ version: '2' }), ['a'], 'only the line that it had a part in');
  assert.deepEqual(await sessions({ sinceMs: 6, tenant: '' }), ['a', 'a']);
});

test('trajectories have the group of their session, which not all of its requests name', async () => {
  const { store, turns } = branching('a');
  store.put([
    turnOf({ session: 'a' }),
    turnOf({ session: 'fork', parent: turns[0]!.id, keeps: 2 }),
    turnOf({ session: 'none' }),
  ]);
  const made = (await lines(store)).map(({ session, group }) => [session, group]);
  const own = ['a', 'g'];
  assert.deepEqual(made, [own, own, own, ['fork', ''], ['none', '']]);
  assert.deepEqual((await lines(store, { group: 'g' })).length, 3);
});

test('a trajectory whose beginning is gone is left out and counted, and so is one that can not be', async () => {
  const store = new MemoryStore(1e9);
  store.put([turnOf({ session: 'a', parent: 'gone', keeps: 2 }), turnOf({ session: 'b', keeps: 3 })]);
  const { bytes, progress } = await exported(store, 'jsonl');
  assert.equal(bytes.length, 0);
  assert.deepEqual(progress.leftOut, {
    'a turn before it is gone': 1,
    'a turn keeps more than there is before it': 1,
  });
  assert.equal(assemble([turnOf({ keeps: 1 })]), 'a turn keeps more than there is before it');
});

test('a line may begin in another session', async () => {
  const store = new MemoryStore(1e9);
  const first = turnOf({ session: 'a', ids: Int32Array.of(1, 2, 3, 4) });
  store.put([first, turnOf({ session: 'b', parent: first.id, keeps: 2, ids: Int32Array.of(7, 8, 9, 10) })]);
  assert.deepEqual((await lines(store, { session: 'b' }))[0]?.tokens, [1, 2, 7, 8, 9, 10]);
  assert.deepEqual((await lines(store, { session: 'a' }))[0]?.tokens, [1, 2, 3, 4]);
});

test('parquet: a trajectory a row, as the readers of others read it', async (t) => {
  const { store } = branching();
  const { bytes } = await exported(store, 'parquet');
  const rows = await parquetReadObjects({
    file: bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length),
  });
  const expected = await lines(store);
  assert.equal(rows.length, 2);
  for (const [i, row] of rows.entries()) {
    for (const name of ['id', 'session', 'tokens', 'loss_mask', 'rollout_log_probs'] as const) {
      assert.deepEqual(row[name], expected[i]![name], name);
    }
    assert.deepEqual(JSON.parse(row['versions'] as string), expected[i]!.versions);
  }
  const python = pythonWith('pyarrow');
  if (python === undefined) {
    t.diagnostic('no Python with pyarrow: not read by it');
    return;
  }
  const file = join(temporaryFolder(t), 'out.parquet');
  writeFileSync(file, bytes);
  const script = `
import json, sys, pyarrow.parquet as pq
table = pq.read_table(sys.argv[1])
rows = table.select(["id", "tokens", "loss_mask", "rollout_log_probs"]).to_pylist()
print(json.dumps({"types": [str(field.type) for field in table.schema], "rows": rows}))`;
  const { rows: theirs, types } = runPython(python, script, file) as { rows: Line[]; types: string[] };
  assert.deepEqual(
    theirs,
    expected.map(({ id, tokens: ids, loss_mask, rollout_log_probs }) => ({
      id,
      tokens: ids,
      loss_mask,
      rollout_log_probs,
    })),
  );
  assert.ok(
    types.some((type) => type.startsWith('list<') && type.includes('int32')),
    types.join(),
  );
});

test('parquet and safetensors of nothing are files all the same', async () => {
  const { bytes } = await exported(new MemoryStore(1e9), 'parquet');
  assert.deepEqual(await parquetReadObjects({ file: new Uint8Array(bytes).buffer }), []);
  const tensors = readTensors((await exported(new MemoryStore(1e9), 'safetensors')).bytes);
  assert.deepEqual(tensors['tokens'], { dtype: 'I64', shape: [0], bytes: Buffer.alloc(0) });
});

interface ReadTensor {
  readonly dtype: string;
  readonly shape: number[];
  readonly bytes: Buffer;
}

/** The format as its description says: nothing of ours. */
function readTensors(file: Buffer): Record<string, ReadTensor> {
  const length = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString('utf8', 8, 8 + length)) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  let end = 0;
  const tensors = Object.entries(header).map(
    ([
      name,
      {
        dtype,
        shape,
        data_offsets: [from, to],
      },
    ]) => {
      assert.equal(from, end, 'no holes');
      end = to;
      return [name, { dtype, shape, bytes: file.subarray(8 + length + from, 8 + length + to) }] as const;
    },
  );
  assert.equal(8 + length + end, file.length);
  return Object.fromEntries(tensors);
}

test('safetensors: all trajectories in one set of tensors, with the experts of each', async (t) => {
  const dataDir = temporaryFolder(t);
  mkdirSync(join(dataDir, 'experts'));
  const experts = Int32Array.from({ length: 3 * 2 * 2 }, (_, i) => i);
  writeFileSync(join(dataDir, 'experts/a'), experts);
  writeFileSync(
    join(dataDir, 'experts/b'),
    Uint8Array.from({ length: 2 * 4 }, (_, i) => 100 + i),
  );
  const store = new MemoryStore(1e9);
  const ids = Int32Array.of(1, 2, 3, 4);
  store.put([
    turnOf({ session: 'a', ids, experts: { file: 'experts/a', bytes: 48, dtype: null, shape: null } }),
    turnOf({ session: 'b', ids, experts: { file: 'experts/b', bytes: 8, dtype: 'uint8', shape: [2, 4] } }),
    turnOf({ session: 'c', ids, experts: { file: 'experts/gone', bytes: 8, dtype: 'uint8', shape: [2, 4] } }),
  ]);
  const { bytes } = await exported(store, 'safetensors', {}, dataDir);
  const tensors = readTensors(bytes);
  const shapes = Object.fromEntries(
    Object.entries(tensors).map(([name, { dtype, shape }]) => [name, [dtype, ...shape]]),
  );
  assert.deepEqual(shapes, {
    tokens: ['I64', 12],
    offsets: ['I64', 4],
    routed_experts_offsets: ['I64', 4],
    rollout_log_probs: ['F64', 12],
    routed_experts: ['I32', 5, 4],
    loss_mask: ['U8', 12],
    meta: ['U8', tensors['meta']!.bytes.length],
  });
  const meta = JSON.parse(tensors['meta']!.bytes.toString()) as Line[];
  assert.deepEqual(
    meta.map(({ session }) => session),
    ['a', 'b', 'c'],
  );
  const read = tensors['routed_experts']!.bytes;
  assert.deepEqual(
    Array.from({ length: 20 }, (_, i) => read.readInt32LE(4 * i)),
    [...experts, 100, 101, 102, 103, 104, 105, 106, 107],
  );
  assert.deepEqual(
    Array.from({ length: 4 }, (_, i) => Number(tensors['routed_experts_offsets']!.bytes.readBigInt64LE(8 * i))),
    [0, 3, 5, 5],
  );
  const python = pythonWith('safetensors.numpy');
  if (python === undefined) {
    t.diagnostic('no Python with safetensors: not read by it');
    return;
  }
  const file = join(dataDir, 'out.safetensors');
  writeFileSync(file, bytes);
  const script = `
import json, sys
from safetensors.numpy import load_file
tensors = load_file(sys.argv[1])
print(json.dumps({name: [str(a.dtype), list(a.shape), a.tolist()] for name, a in tensors.items() if name != "meta"}))`;
  const theirs = runPython(python, script, file) as Record<string, [string, number[], unknown]>;
  assert.deepEqual(theirs['tokens'], ['int64', [12], [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4]]);
  assert.deepEqual(theirs['routed_experts']?.slice(0, 2), ['int32', [5, 4]]);
  assert.deepEqual(theirs['loss_mask']?.slice(0, 2), ['uint8', [12]]);
});

/** A Python of the engines that `npm test -- suite:real` installs, or of this machine, that has the module. */
function pythonWith(module: string): string | undefined {
  const home = process.env['TURNOUT_REAL_DIR'] ?? join(homedir(), '.cache/turnout');
  return [...globSync(join(home, 'engines/*/bin/python')), 'python3'].find(
    (python) => spawnSync(python, ['-c', `import ${module}`]).status === 0,
  );
}

function runPython(python: string, script: string, file: string): unknown {
  const { stdout, stderr, status } = spawnSync(python, ['-c', script, file], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout);
}

test('a line comes in pieces: bodies of many turns together may be more than a text can hold', async () => {
  const store = new MemoryStore(1e9);
  let parent: string | null = null;
  for (let i = 0; i < 8; i++) {
    const turn: Turn = turnOf({ parent, keeps: 4 * i, request: Buffer.alloc(1_000_000, 'x') });
    store.put([turn]);
    parent = turn.id;
  }
  const pieces: Uint8Array[] = [];
  const order = { format: 'jsonl', query: {}, dataDir: null } as const;
  for await (const piece of await exportBytes(store, order, noProgress())) pieces.push(piece);
  for (const { length } of pieces) assert.ok(length < 3_000_000, `${length}`);
  assert.equal((JSON.parse(Buffer.concat(pieces).toString()) as Line).turns.length, 8);
});

test('an export of many short lines is read in few calls', async () => {
  const store = new MemoryStore(1e9);
  store.put(Array.from({ length: 2_000 }, (_, i) => turnOf({ session: `s${i}` })));
  const calls = exportCalls(
    { store } as never,
    null,
    async () => {},
    async () => null,
  );
  const id = 1;
  assert.equal(await calls.exportBegin({ id, format: 'jsonl', query: {} }), true);
  const parts: Uint8Array[] = [];
  for (let part = await calls.exportNext(id); part !== null; part = await calls.exportNext(id)) parts.push(part);
  const { bytes } = await exported(store, 'jsonl');
  assert.deepEqual(Buffer.concat(parts), bytes);
  assert.ok(parts.length <= bytes.length / 131_072 + 1, `${parts.length} calls for ${bytes.length} bytes`);
  assert.ok(
    parts.every((part) => part.length < 140_000),
    'no part is much larger, because requests wait meanwhile',
  );
});

test('a line with very many tokens comes in parts, because the thread is blocked while one is made', async () => {
  const store = new MemoryStore(1e9);
  const ids = Int32Array.from({ length: 200_000 }, (_, i) => i);
  store.put([turnOf({ ids, logprobs: new Float64Array(200_000).fill(-1 / 3), mask: new Uint8Array(200_000) })]);
  const pieces: Uint8Array[] = [];
  const order = { format: 'jsonl', query: {}, dataDir: null } as const;
  for await (const piece of await exportBytes(store, order, noProgress())) pieces.push(piece);
  for (const { length } of pieces) assert.ok(length < 200_000, `${length}`);
  const line = JSON.parse(Buffer.concat(pieces).toString()) as Line;
  assert.deepEqual([line.tokens, new Set(line.rollout_log_probs)], [[...ids], new Set([-1 / 3])]);
});

test('row groups of parquet have about a megabyte, because the thread is blocked while one is written', async () => {
  const store = new MemoryStore(1e9);
  const zeros = { ids: new Int32Array(40_000), logprobs: new Float64Array(40_000), mask: new Uint8Array(40_000) };
  for (let i = 0; i < 10; i++) store.put([turnOf({ session: `s${i}`, ...zeros })]);
  const { bytes } = await exported(store, 'parquet');
  const file = new Uint8Array(bytes).buffer;
  assert.deepEqual(
    parquetMetadata(file).row_groups.map((group) => Number(group.num_rows)),
    [3, 3, 3, 1],
  );
  const rows = await parquetReadObjects({ file });
  assert.deepEqual(
    rows.map((row) => [row['session'], (row['tokens'] as number[]).length]),
    Array.from({ length: 10 }, (_, i) => [`s${i}`, 40_000]),
  );
});

test('what is not known is null, and NaN where a format has numbers alone', async () => {
  const store = new MemoryStore(1e9);
  const first = turnOf({
    session: 's',
    ids: Int32Array.of(1, 2, 3),
    mask: Uint8Array.of(0, 1, 1),
    logprobs: Float64Array.of(0, -0.5, NaN),
    unknownLogprobs: 1,
    versions: [
      { version: '7', from: 1, to: 2 },
      { version: null, from: 2, to: 3, before: '7', after: '8' },
    ],
    finishReason: 'length',
  });
  const second = turnOf({
    session: 's',
    parent: first.id,
    keeps: 3,
    ids: Int32Array.of(4, 5),
    mask: Uint8Array.of(0, 1),
    logprobs: Float64Array.of(0, NaN),
    unknownLogprobs: 1,
    versions: [{ version: null, from: 1, to: 2 }],
  });
  store.put([first, second]);
  const [line] = await lines(store);
  assert.deepEqual(line!.rollout_log_probs, [0, -0.5, null, 0, null]);
  const versions = [
    { version: '7', from: 1, to: 2 },
    { version: null, from: 2, to: 3, before: '7', after: '8' },
    { version: null, from: 4, to: 5 },
  ];
  assert.deepEqual(line!.versions, versions);
  assert.deepEqual(
    line!.turns.map((turn) => turn['unknown_logprobs']),
    [1, 1],
  );
  const { bytes } = await exported(store, 'parquet');
  const [row] = await parquetReadObjects({ file: new Uint8Array(bytes).buffer });
  assert.deepEqual(row!['rollout_log_probs'], [0, -0.5, null, 0, null]);
  assert.deepEqual(JSON.parse(row!['versions'] as string), versions);
  const tensors = readTensors((await exported(store, 'safetensors')).bytes);
  const { bytes: numbers } = tensors['rollout_log_probs']!;
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((i) => numbers.readDoubleLE(8 * i)),
    [0, -0.5, NaN, 0, NaN],
  );
  const [meta] = JSON.parse(tensors['meta']!.bytes.toString()) as { versions: unknown }[];
  assert.deepEqual(meta!.versions, versions);
  assert.equal((await lines(store, { version: '8' })).length, 0);
});
