import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { RotatingFile } from './log-targets.ts';

function folderFor(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-log-'));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

const contents = (folder: string): Record<string, string> =>
  Object.fromEntries(
    readdirSync(folder)
      .toSorted()
      .map((name) => [name, readFileSync(join(folder, name), 'utf8')]),
  );

test('a full file is put aside, whole lines only, and the oldest goes', async (t) => {
  const folder = join(folderFor(t), 'made', 'if need be');
  const file = new RotatingFile(folder, 10, 3);
  for (const text of ['1111\n2222\n', '3333\n', '4444\n5555\n6666\n', '7777\n']) await file.write(text);
  assert.deepEqual(contents(folder), {
    'turnout.log': '7777\n',
    'turnout.log.1': '5555\n6666\n',
    'turnout.log.2': '3333\n4444\n',
  });
});

test('a line that is longer than a file gets one of its own', async (t) => {
  const folder = folderFor(t);
  const file = new RotatingFile(folder, 10, 9);
  await file.write(`a\n${'b'.repeat(30)}\nc\n`);
  assert.deepEqual(contents(folder), {
    'turnout.log': 'c\n',
    'turnout.log.1': `${'b'.repeat(30)}\n`,
    'turnout.log.2': 'a\n',
  });
});

test('one file: it is begun anew', async (t) => {
  const folder = folderFor(t);
  const file = new RotatingFile(folder, 10, 1);
  for (let i = 0; i < 9; i++) await file.write(`line ${i}\n`);
  assert.deepEqual(contents(folder), { 'turnout.log': 'line 8\n' });
});

test('what is there already is gone on with', async (t) => {
  const folder = folderFor(t);
  writeFileSync(join(folder, 'turnout.log'), '1234567\n');
  const file = new RotatingFile(folder, 12, 2);
  await file.write('a\n');
  await file.write('bcdef\n');
  assert.deepEqual(contents(folder), { 'turnout.log': 'bcdef\n', 'turnout.log.1': '1234567\na\n' });
});

test('a file that another program moved away is made anew once that is asked for', async (t) => {
  const folder = folderFor(t);
  const file = new RotatingFile(folder, 1_000, 2);
  await file.write('old\n');
  renameSync(join(folder, 'turnout.log'), join(folder, 'moved'));
  await file.write('still there\n');
  file.reopen();
  await file.write('new\n');
  assert.deepEqual(contents(folder), { moved: 'old\nstill there\n', 'turnout.log': 'new\n' });
});

test('a folder that can not be made is an error at once', (t) => {
  const folder = folderFor(t);
  writeFileSync(join(folder, 'file'), '');
  assert.throws(() => new RotatingFile(join(folder, 'file'), 10, 1), /EEXIST/);
});
