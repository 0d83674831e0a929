import assert from 'node:assert/strict';
import fs, { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { checkFolder, makeFolder } from './folder.ts';

const folder = mkdtempSync(join(tmpdir(), 'turnout-folder-'));
after(() => rmSync(folder, { recursive: true }));

test('a folder is made with those above it, and may be there', () => {
  const path = join(folder, 'a/b/c');
  checkFolder('--data-dir', path);
  assert.equal(existsSync(join(folder, 'a')), false);
  makeFolder('--data-dir', path);
  makeFolder('--data-dir', path);
  checkFolder('--data-dir', path);
  assert.ok(existsSync(path));
});

test('a file in its place, or above it, is named', () => {
  const file = join(folder, 'file');
  writeFileSync(file, '');
  for (const act of [makeFolder, checkFolder])
    for (const path of [file, join(file, 'x')])
      assert.throws(() => act('--data-dir', path), { message: `--data-dir ${path}: ${file} is a file, not a folder` });
});

test('a place that takes nothing is found without making anything', () => {
  assert.throws(() => checkFolder('--data-dir', '/proc/x'), /^Error: --data-dir \/proc\/x: \/proc is not writable/);
});

test('a place that takes no folder is refused at once', () => {
  assert.throws(
    () => makeFolder('--data-dir', '/proc/x/y'),
    /^Error: --data-dir \/proc\/x\/y: \/proc\/x can't be created/,
  );
});

test('a folder of a full disk is taken: a router starts there all the same', (t) => {
  const path = join(folder, 'full');
  makeFolder('--data-dir', path);
  const make = t.mock.method(fs, 'mkdtempSync', () => {
    throw Object.assign(new Error('no space left on device'), { code: 'ENOSPC' });
  });
  t.after(syncBuiltinESMExports);
  syncBuiltinESMExports();
  makeFolder('--data-dir', path);
  checkFolder('--data-dir', path);
  assert.equal(make.mock.callCount(), 2);
  make.mock.restore();
});
