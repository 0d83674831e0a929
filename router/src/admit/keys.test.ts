import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { KeySet, digestOf } from './keys.ts';

const folder = mkdtempSync(join(tmpdir(), 'turnout-keys-'));
test.after(() => rmSync(folder, { recursive: true, force: true }));

function keyFile(text: string): string {
  const file = join(folder, 'keys');
  writeFileSync(file, text);
  return file;
}

test('keys from flags and from a file, and no others', () => {
  const file = keyFile('# trainers\nfrom-file\r\n\n  spaced  \n');
  const keys = new KeySet({ keys: ['flag'], file, option: '--api-key-file' });
  assert.deepEqual(
    ['flag', 'from-file', 'spaced', '# trainers', '', 'Flag', 'flag2', 'fla'].map((key) => keys.has(digestOf(key))),
    [true, true, true, false, false, false, false, false],
  );
  assert.equal(keys.first, 'flag');
});

test('a file is read again; one that can\u2019t be keeps the old keys', () => {
  const file = keyFile('one');
  const keys = new KeySet({ keys: [], file, option: '--api-key-file' });
  keyFile('two');
  keys.prepare()();
  assert.deepEqual([keys.has(digestOf('one')), keys.has(digestOf('two'))], [false, true]);
  for (const spoiled of ['', '# nothing\n', 'a key\n']) {
    keyFile(spoiled);
    assert.throws(() => keys.prepare()(), /--api-key-file .*keys: (no key in it|line 1 is not a key)/);
    assert.ok(keys.has(digestOf('two')));
  }
  rmSync(file);
  assert.throws(() => keys.prepare()(), /not readable \(ENOENT\)/);
  assert.ok(keys.has(digestOf('two')));
});

test('a set of keys does not expose its keys', () => {
  const file = keyFile('secret\n');
  const shown = inspect(new KeySet({ keys: ['secret'], file, option: '--api-key-file' }), { showHidden: true });
  assert.doesNotMatch(shown.replaceAll(folder, ''), /secret/);
  keyFile('very secret\n');
  assert.throws(
    () => new KeySet({ keys: [], file, option: '--api-key-file' }),
    (error: Error) => !error.message.includes('secret'),
  );
});
