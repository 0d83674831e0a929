import assert from 'node:assert/strict';
import { cpSync, globSync, mkdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { setVersion, versionOf, versionsIn } from './version.ts';
import { temporaryFolder } from '../router/test/harness/temporary-folder.ts';

const root = join(import.meta.dirname, '..');

test('every place has the version of router/package.json', () => {
  const version = versionOf(root);
  assert.deepEqual(
    versionsIn(root).filter((place) => place.version !== version),
    [],
  );
});

test('no other file names a version of the image or of the package', () => {
  const known = new Set(versionsIn(root).map(({ file }) => file));
  const files = globSync(['*.md', 'docs/**/*.md', 'deploy/**/*', 'examples/**/*', 'python/**/*.{md,toml}'], {
    cwd: root,
    exclude: (path) => /node_modules|(^|\/)(dist|build)(\/|$)|\.vitepress/.test(path),
  });
  const named = files.filter((file) => {
    const path = join(root, file);
    return statSync(path).isFile() && /turnout(?:[:@-]v?|==)\d+\.\d+\.\d+/.test(readFileSync(path, 'utf8'));
  });
  assert.deepEqual(
    named.filter((path) => !known.has(path)),
    [],
  );
});

test('a new version is written everywhere, and only a version', (t) => {
  const copy = temporaryFolder(t);
  for (const { file } of versionsIn(root)) {
    mkdirSync(dirname(join(copy, file)), { recursive: true });
    cpSync(join(root, file), join(copy, file));
  }
  setVersion(copy, '9.8.7-rc.2');
  assert.equal(versionOf(copy), '9.8.7-rc.2');
  const before = versionsIn(root);
  const after = versionsIn(copy);
  assert.deepEqual(
    after,
    before.map(({ file }) => ({ file, version: '9.8.7-rc.2' })),
  );
  setVersion(copy, versionOf(root));
  for (const { file } of before)
    assert.equal(readFileSync(join(copy, file), 'utf8'), readFileSync(join(root, file), 'utf8'));
  for (const version of ['1.2', 'v1.2.3', '1.2.3-beta', ''])
    assert.throws(() => setVersion(copy, version), /must be X\.Y\.Z/);
});
