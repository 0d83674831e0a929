import assert from 'node:assert/strict';
import fs, { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { until } from '../../test/harness/within.ts';
import { fileStore } from './state-files.ts';

function directoryFor(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'turnout-state-'));
  t.after(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

const fail = (error: Error): void => assert.fail(error);
const linesOf = (path: string): string[] => readFileSync(path, 'utf8').split('\n').filter(Boolean);

test('what was set and not deleted is there again', async (t) => {
  const directory = join(directoryFor(t), 'made', 'if need be');
  const store = fileStore(directory, fail);
  const map = store.open('sessions');
  assert.equal(map.size, 0);
  map.set('a', '1');
  map.set('b', 'two\nlines "quoted" \u2028 é 😀');
  map.set('a', '3');
  map.set('c', '');
  map.delete('c');
  map.delete('never there');
  await store.flush();

  const again = fileStore(directory, fail).open('sessions');
  assert.deepEqual([...again.entries()], [...map.entries()]);
  assert.deepEqual([again.size, again.get('a'), again.get('c')], [2, '3', undefined]);
});

test('maps of different names are apart, the same name is the same map', async (t) => {
  const directory = directoryFor(t);
  const store = fileStore(directory, fail);
  store.open('one').set('k', '1');
  store.open('two').set('k', '2');
  assert.equal(store.open('one').get('k'), '1');
  await store.flush();
  const again = fileStore(directory, fail);
  assert.deepEqual([again.open('one').get('k'), again.open('two').get('k')], ['1', '2']);
});

test('a file that the end of a process has torn loses its last change only', async (t) => {
  const directory = directoryFor(t);
  const store = fileStore(directory, fail);
  for (let i = 0; i < 10; i++) store.open('s').set(`k${i}`, 'value');
  await store.flush();
  const path = join(directory, 's.jsonl');
  const whole = readFileSync(path);
  for (let cut = 1; cut < 15; cut++) {
    writeFileSync(path, whole.subarray(0, whole.length - cut));
    const reopened = fileStore(directory, fail);
    const map = reopened.open('s');
    assert.equal(map.size, cut === 1 ? 10 : 9);
    // What is written next must not be glued to the torn line.
    map.set('next', '1');
    await reopened.flush();
    assert.equal(fileStore(directory, fail).open('s').get('next'), '1');
  }
});

test('lines that are no changes are left out', (t) => {
  const directory = directoryFor(t);
  const path = join(directory, 's.jsonl');
  writeFileSync(
    path,
    '["a","1"]\n\nnull\n7\n{"x":1}\n[]\n[1,2]\n["b",3]\n["c","4","5"]\n\u0000\u0000\n["d","6"]\n["a"]\n',
  );
  const map = fileStore(directory, fail).open('s');
  for (const [name, value] of map.entries()) assert.deepEqual([typeof name, typeof value], ['string', 'string']);
  assert.deepEqual([map.get('a'), map.get('d')], [undefined, '6']);
});

test('changes while a write is under way are written too, in their order', async (t) => {
  const directory = directoryFor(t);
  const store = fileStore(directory, fail);
  const map = store.open('s');
  for (let round = 0; round < 50; round++) {
    for (let i = 0; i < 20; i++) map.set(`k${i}`, `${round}`);
    if (round % 3 === 0) map.delete(`k${round % 20}`);
    // Somewhere in the write before it.
    await new Promise(round % 2 === 0 ? setImmediate : process.nextTick);
  }
  await store.flush();
  assert.deepEqual(new Map(fileStore(directory, fail).open('s').entries()), new Map(map.entries()));
});

test('a file of many changes is written anew when little of it is alive', async (t) => {
  const directory = directoryFor(t);
  const path = join(directory, 's.jsonl');
  const store = fileStore(directory, fail);
  const map = store.open('s');
  for (let i = 0; i < 60; i++) {
    for (let n = 0; n < 500; n++) map.set('k', `${i} ${n}`);
    await store.flush();
  }
  const lines = linesOf(path).length;
  assert.ok(lines <= 10_000 + 500 + 2, `${lines} lines`);
  assert.equal(fileStore(directory, fail).open('s').get('k'), '59 499');
  assert.deepEqual(linesOf(path), ['["k","59 499"]']);
  assert.deepEqual(readdirSync(directory), ['s.jsonl']);
});

test('a file that replaces another one is synced to the disk before it does', async (t) => {
  const directory = directoryFor(t);
  const path = join(directory, 's.jsonl');
  writeFileSync(path, '["a","1"]\n');
  const synced: string[][] = [];
  const note = (): void => void synced.push(linesOf(`${path}.new`));
  const handle = await open(path);
  const sync = t.mock.method(Object.getPrototypeOf(handle) as typeof handle, 'sync', async () => note());
  t.mock.method(fs, 'fsyncSync', note);
  await handle.close();
  const store = fileStore(directory, fail);
  const map = store.open('s');
  assert.deepEqual(synced, [['["a","1"]']], 'at the start');
  for (let n = 0; n < 10_010; n++) map.set('a', `${n}`);
  await store.flush();
  assert.equal(sync.mock.callCount(), 1);
  assert.deepEqual(synced[1], ['["a","10009"]'], 'when it is written anew');
  assert.deepEqual(linesOf(path), synced[1]);
});

test('nothing is written for what does not change', async (t) => {
  const directory = directoryFor(t);
  const store = fileStore(directory, fail);
  const map = store.open('s');
  for (let i = 0; i < 100; i++) map.set('k', 'same');
  await store.flush();
  assert.deepEqual(linesOf(join(directory, 's.jsonl')), ['["k","same"]']);
});

test('a directory that can not be used is reported at once', (t) => {
  const directory = directoryFor(t);
  writeFileSync(join(directory, 'file'), '');
  assert.throws(() => fileStore(join(directory, 'file', 'below'), fail), /ENOTDIR|EEXIST/);
  assert.throws(() => fileStore(join(directory, 'file'), fail), /EEXIST|ENOTDIR/);
});

test('a write that fails is reported, and what is alive is written once that is possible', async (t) => {
  for (const isClosed of [false, true]) {
    const directory = directoryFor(t);
    const errors: Error[] = [];
    const store = fileStore(directory, (error) => errors.push(error));
    const map = store.open('s');
    const path = join(directory, 's.jsonl');
    // A folder in the file's place: refused to root, too.
    rmSync(path);
    mkdirSync(path);
    map.set('lost', 'for now');
    await store.flush();
    assert.equal(errors.length, 1);
    assert.match(errors[0]!.message, /EISDIR/);
    assert.equal(map.get('lost'), 'for now');
    for (let i = 0; i < 100; i++) {
      map.set('next', `${i}`);
      await store.flush();
    }
    assert.equal(errors.length, 1, 'it is not tried with every change, as each attempt writes the whole map');
    rmSync(path, { recursive: true });
    if (isClosed) await store.close();
    else await until('it is written without a further change', () => existsSync(path));
    assert.equal(errors.length, 1);
    const again = new Map(fileStore(directory, fail).open('s').entries());
    assert.deepEqual(again, new Map(Object.entries({ lost: 'for now', next: '99' })));
  }
});

test('a file that can not be written at the start is reported, and its content is known all the same', async (t) => {
  const directory = directoryFor(t);
  const path = join(directory, 's.jsonl');
  writeFileSync(path, '["a","1"]\n["b","2"]\n["torn');
  // As on a full disk, but also for root.
  mkdirSync(`${path}.new`);
  const errors: Error[] = [];
  const store = fileStore(directory, (error) => errors.push(error));
  const map = store.open('s');
  assert.deepEqual([errors.length, map.get('a')], [1, '1']);
  map.set('c', '3');
  rmSync(`${path}.new`, { recursive: true });
  await store.close();
  assert.deepEqual(linesOf(path), ['["a","1"]', '["b","2"]', '["c","3"]']);
  rmSync(path);
  mkdirSync(path);
  assert.throws(() => fileStore(directory, fail).open('s'), /s\.jsonl: EISDIR/);
});

test('random changes, random restarts', async (t) => {
  const directory = directoryFor(t);
  let run = 0;
  const step = fc.oneof(
    fc.record({ kind: fc.constant('set' as const), name: fc.string({ maxLength: 3 }), value: fc.string() }),
    fc.record({ kind: fc.constant('delete' as const), name: fc.string({ maxLength: 3 }), value: fc.constant('') }),
    fc.record({ kind: fc.constant('restart' as const), name: fc.constant(''), value: fc.constant('') }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
      const own = join(directory, `${run++}`);
      const expected = new Map<string, string>();
      let store = fileStore(own, fail);
      for (const { kind, name, value } of steps) {
        if (kind === 'set') {
          expected.set(name, value);
          store.open('s').set(name, value);
        } else if (kind === 'delete') {
          expected.delete(name);
          store.open('s').delete(name);
        } else {
          await store.flush();
          store = fileStore(own, fail);
          assert.deepEqual(new Map(store.open('s').entries()), expected);
        }
      }
      await store.flush();
    }),
    { numRuns: 40, seed: 8 },
  );
});
