import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { parquetReadObjects } from 'hyparquet';
import { boundedKey } from '../../src/classify/routing-keys.ts';
import { packed } from '../../src/recorder/thread/store/packed-body.ts';
import { SqliteStore } from '../../src/recorder/thread/store/sqlite.ts';
import { RedisStore } from '../../src/recorder/thread/store/redis.ts';
import type { Turn } from '../../src/recorder/shared/turn.ts';
import { turnout } from '../cli/turnout.ts';
import { STREAM_HEAD, answer, startEngine } from '../harness/engine.ts';
import { startRespServer } from '../harness/resp-server.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { turnOf } from '../harness/turns.ts';
import { within } from '../harness/within.ts';

function filled(t: TestContext, turns: readonly Turn[]): { dataDir: string; store: SqliteStore } {
  const dataDir = temporaryFolder(t);
  const store = new SqliteStore(dataDir);
  store.put(turns);
  t.after(() => store.close());
  return { dataDir, store };
}

const lines = (text: string) =>
  text
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as { session: string; tokens: number[] });

test('export writes a file in each form, while the store is open elsewhere', async (t) => {
  const turns = [turnOf({ session: 'a', group: 'g' }), turnOf({ session: 'b' })];
  const { dataDir, store } = filled(t, turns);
  const file = join(dataDir, 'out');
  const all = turnout(t, ['export', '--format', 'jsonl', '--data-dir', dataDir, '-o', file]);
  assert.equal(await all.ended, 0, all.output());
  assert.match(all.output(), /export: 2 trajectories of 2 sessions, 8 tokens, in /);
  assert.deepEqual(
    lines(readFileSync(file, 'utf8')).map(({ tokens }) => tokens),
    turns.map(({ ids }) => [...ids]),
  );
  assert.ok(!existsSync(`${file}.part`));
  store.put([turnOf({ session: 'c', parent: 'gone', keeps: 1 })]);
  const piped = turnout(t, ['export', '--format', 'jsonl', '--group', 'g'], { TURNOUT_DATA_DIR: dataDir });
  assert.equal(await piped.ended, 0);
  assert.deepEqual(
    lines(piped.output()).map(({ session }) => session),
    ['a'],
  );
  const parquet = turnout(t, ['export', '--format', 'parquet', '--data-dir', dataDir, '-o', file]);
  assert.equal(await parquet.ended, 0);
  assert.match(parquet.output(), /1 left out: a turn before it is gone/);
  const rows = await parquetReadObjects({ file: new Uint8Array(readFileSync(file)).buffer });
  assert.deepEqual(
    rows.map(({ session }) => session as string),
    ['a', 'b'],
  );
});

test('export makes a file of tensors where only the data folder can be written', async (t) => {
  const { dataDir } = filled(t, [turnOf(), turnOf({ session: 'other' })]);
  const args = ['export', '--format', 'safetensors', '--data-dir', dataDir, '-o', join(dataDir, 'out')];
  const run = turnout(t, args, { TMPDIR: join(dataDir, 'missing') });
  assert.equal(await run.ended, 0, run.output());
  assert.match(run.output(), /export: 2 trajectories of 2 sessions, 8 tokens, in /);
  assert.deepEqual(
    readdirSync(dataDir).filter((name) => name.startsWith('turnout-export')),
    [],
  );
});

test('export ends, and reports the requests that an earlier release stored unreadably', async (t) => {
  const ring = [turnOf(), turnOf(), turnOf()];
  const body = Buffer.from('{"messages":[]}'.padEnd(300));
  const request = (i: number): Uint8Array => packed(body, { id: ring[(i + 2) % 3]!.id, depth: i, body });
  const { dataDir } = filled(
    t,
    ring.map((turn, i) => ({ ...turn, request: request(i) })),
  );
  const run = turnout(t, ['export', '--format', 'jsonl', '--data-dir', dataDir]);
  assert.equal(await run.ended, 0, run.output());
  const turns = lines(run.output()).flatMap((line) => (line as unknown as { turns: Record<string, unknown>[] }).turns);
  assert.deepEqual(
    turns.map(({ id, unreadable, request: said }) => [id, unreadable, said]),
    ring.map(({ id }) => [id, ['request'], undefined]),
  );
  assert.match(run.output(), /export: 3 turns have a stored request or response that can't be read/);
});

test('export finds a session and a group by their whole names, which the store has as hashes', async (t) => {
  const [session, group] = ['s'.repeat(600), 'g'.repeat(600)];
  const { dataDir } = filled(t, [turnOf({ session: boundedKey(session), group: boundedKey(group) }), turnOf()]);
  for (const wish of [
    ['--session', session],
    ['--group', group],
  ]) {
    const run = turnout(t, ['export', '--format', 'jsonl', '--data-dir', dataDir, ...wish]);
    assert.equal(await run.ended, 0, run.output());
    assert.deepEqual(
      lines(run.output()).map((line) => line.session),
      [boundedKey(session)],
    );
  }
});

test('export reads the shared store', async (t) => {
  const { url } = await startRespServer(t);
  const store = await RedisStore.open(url, true);
  await store.put([turnOf({ session: 'far' })]);
  store.close();
  const run = turnout(t, ['export', '--format', 'jsonl', '--store', url]);
  assert.equal(await run.ended, 0, run.output());
  assert.deepEqual(
    lines(run.output()).map(({ session }) => session),
    ['far'],
  );
});

test('an export whose store goes away ends with a word, not with a crash', async (t) => {
  const redis = await startRespServer(t);
  const store = await RedisStore.open(redis.url, true);
  const request = Buffer.alloc(100_000, 'x');
  await store.put(Array.from({ length: 50 }, (_, i) => turnOf({ session: `s${i}`, request })));
  store.close();
  const run = turnout(t, ['export', '--format', 'jsonl', '--store', redis.url]);
  // It waits for its reader.
  await once(run.child.stdout!, 'data');
  run.child.stdout!.pause();
  await redis.stop();
  run.child.stdout!.resume();
  assert.equal(await run.ended, 2);
  assert.match(run.output(), /^turnout: the export is incomplete: .+\n$/m);
});

test('an export whose reader has gone ends with a word, not with a crash', async (t) => {
  const { dataDir } = filled(t, [turnOf()]);
  const run = turnout(t, ['export', '--format', 'jsonl', '--data-dir', dataDir]);
  run.child.stdout!.destroy();
  assert.equal(await run.ended, 2);
  assert.equal(run.output(), 'turnout: the export is incomplete: the process that reads the output has ended\n');
});

test('what export can not do it says in words', async (t) => {
  const empty = temporaryFolder(t);
  const { dataDir } = filled(t, [turnOf()]);
  const other = temporaryFolder(t);
  writeFileSync(
    join(other, 'trajectories.sqlite'),
    'no database, but text that is as long as its header has to be'.repeat(9),
  );
  const cases: [string[], RegExp][] = [
    [['--format', 'jsonl', '--data-dir', other], /trajectories\.sqlite: file is not a database/],
    [['--format', 'csv'], /--format csv: one of jsonl, parquet, safetensors/],
    [['--format', 'jsonl', '--data-dir', empty, '--since', 'soon'], /--since soon: a time/],
    [['--format', 'jsonl'], /give the --data-dir of the router/],
    [['--format', 'jsonl', '--data-dir', empty], /trajectories\.sqlite: there is no such file/],
    [['--format', 'jsonl', '--data-dir', dataDir, '-o', join(empty, 'no', 'x')], /incomplete: ENOENT.*x\.part/],
    [['--format', 'jsonl', '--store', 'redis://127.0.0.1:1'], /can't be reached/],
    [['--format', 'jsonl', '--data-dir', dataDir, '--store', 'sqlit'], /--store sqlit: sqlite .* or redis:/],
    [['--format', 'jsonl', '--data-dir', dataDir, '--store', 'memory'], /GET \/trajectories\?format=jsonl/],
    [['--format', 'jsonl', '--data-dir', dataDir, '-o', empty], /it is a folder/],
  ];
  for (const [args, words] of cases) {
    const run = turnout(t, ['export', ...args]);
    assert.equal(await run.ended, 2);
    assert.match(run.output(), words);
  }
});

test('an export into a pipe leaves it a pipe', async (t) => {
  const { dataDir } = filled(t, [turnOf({ session: 'piped' })]);
  const pipe = join(dataDir, 'pipe');
  execFileSync('/usr/bin/env', ['mkfifo', pipe]);
  const read = readFile(pipe, 'utf8');
  const run = turnout(t, ['export', '--format', 'jsonl', '--data-dir', dataDir, '-o', pipe]);
  assert.equal(await run.ended, 0, run.output());
  assert.match(await within(read, 'it is written to'), /"session":"piped"/);
  assert.ok(statSync(pipe).isFIFO());
});

/** Two turns of a session, and one of another, as an engine answered them; the file that an export made of them. */
async function recording(t: TestContext): Promise<string> {
  const request = (seed: string) => Buffer.from(`{"text":"hi","sampling_params":{"seed":${seed}}}`);
  const first = turnOf({ session: 'a', ids: Int32Array.of(1, 2, 30, 31), request: request('12345678901234567890') });
  const second = turnOf({
    session: 'a',
    parent: first.id,
    keeps: 4,
    ids: Int32Array.of(5, 6, 40, 41),
    request: request('2'),
    startedAtMs: first.startedAtMs + 1,
  });
  const other = turnOf({ session: 'b', ids: Int32Array.of(1, 2, 50, 51), request: request('3') });
  const { dataDir } = filled(t, [first, second, other, turnOf({ session: 'c' })]);
  const file = join(dataDir, 'out.jsonl');
  assert.equal(await turnout(t, ['export', '--format', 'jsonl', '--data-dir', dataDir, '-o', file]).ended, 0);
  return file;
}

/** Answers by seed, one of them as a stream. @returns the seeds in the order in which they were asked */
async function engineThatSamples(t: TestContext, ids: Record<string, number[]>) {
  const engine = await startEngine(t);
  const seeds: string[] = [];
  engine.onRequest = (request) => {
    void request.payload().then((body) => {
      const seed = /"seed":(\d+)/.exec(body.toString())![1]!;
      seeds.push(seed);
      const sampled = ids[seed]!;
      const json = JSON.stringify({ output_ids: sampled, meta_info: { completion_tokens: sampled.length } });
      if (seed !== '3') request.connection.write(answer(200, json));
      else {
        const event = `data: ${json}\n\n`;
        const chunk = `${event.length.toString(16)}\r\n${event}\r\n0\r\n\r\n`;
        request.connection.write(STREAM_HEAD + chunk);
      }
    });
  };
  return { engine, seeds };
}

test('replay sends what was recorded, in order, and finds it the same', async (t) => {
  const file = await recording(t);
  const sampled = { '12345678901234567890': [30, 31], '2': [40, 41], '3': [50, 51] };
  const { engine, seeds } = await engineThatSamples(t, sampled);
  for (const speed of [['--as-fast-as-possible'], []]) {
    const run = turnout(t, ['replay', file, '--against', engine.url, ...speed]);
    assert.equal(await run.ended, 0, run.output());
    assert.match(run.output(), /^3 requests in /m);
    assert.match(run.output(), /^same 3, different 0, failed 0, not comparable 0$/m);
    assert.match(run.output(), /^1 turns of the file have no request/m);
    assert.equal(engine.requests.at(-1)?.target, '/generate');
    assert.deepEqual(seeds.splice(0).toSorted(), Object.keys(sampled).toSorted(), 'every digit as it was');
  }
  assert.ok(engine.requests.every(({ head }) => head.get('x-session-id') !== undefined));
});

test('replay reads requests that have the line ends of Unicode', async (t) => {
  const text = '{"text":"one\u2028two\u2029three","sampling_params":{"seed":2}}';
  const { dataDir } = filled(t, [turnOf({ ids: Int32Array.of(1, 2, 40, 41), request: Buffer.from(text) })]);
  const file = join(dataDir, 'out.jsonl');
  assert.equal(await turnout(t, ['export', '--format', 'jsonl', '--data-dir', dataDir, '-o', file]).ended, 0);
  const { engine } = await engineThatSamples(t, { '2': [40, 41] });
  const run = turnout(t, ['replay', file, '--against', engine.url]);
  assert.equal(await run.ended, 0, run.output());
});

test('replay names what is sampled differently, and fails', async (t) => {
  const file = await recording(t);
  const { engine, seeds } = await engineThatSamples(t, { '12345678901234567890': [30, 31], '2': [40, 99], '3': [50] });
  const run = turnout(t, ['replay', file, '--against', engine.url, '--as-fast-as-possible', '--concurrency', '1']);
  assert.equal(await run.ended, 1);
  assert.match(run.output(), /^same 1, different 2, failed 0, not comparable 0$/m);
  assert.match(run.output(), /of session a: sampled token 1 was 41, is 99/);
  assert.match(run.output(), /of session b: sampled token 1 was 51, is its end/);
  assert.ok(seeds.indexOf('12345678901234567890') < seeds.indexOf('2'), 'a turn goes out after the one before it');
});

test('replay says what failed, and what it can not read', async (t) => {
  const file = await recording(t);
  const dead = turnout(t, ['replay', file, '--against', 'http://127.0.0.1:1', '--as-fast-as-possible']);
  assert.equal(await dead.ended, 1);
  assert.match(dead.output(), /failed: ECONNREFUSED/);
  writeFileSync(file, '{"text":"not an export"}\n');
  const other = turnout(t, ['replay', file, '--against', 'http://127.0.0.1:1']);
  assert.equal(await other.ended, 2);
  assert.match(other.output(), /out.jsonl:1: not a line of an export/);
  writeFileSync(file, '{"session":"a","turns":[null]}\n');
  const third = turnout(t, ['replay', file, '--against', 'http://127.0.0.1:1']);
  assert.equal(await third.ended, 2);
  assert.match(third.output(), /out.jsonl:1: not a line of an export/);
});
