import assert from 'node:assert/strict';
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { temporaryFolder } from '../router/test/harness/temporary-folder.ts';
import { run } from './artifacts.ts';
import { obstacles } from './readiness.ts';
import { setVersion, versionsIn } from './version.ts';

const root = join(import.meta.dirname, '..');

/** A repository with the files that have the version. */
function checkout(folder: string): (file: string, text: string) => void {
  const files = [...new Set(versionsIn(root).map(({ file }) => file)), 'CHANGELOG.md'];
  for (const file of files) {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    cpSync(join(root, file), join(folder, file));
  }
  setVersion(folder, '1.2.0');
  run(folder, ['git', 'init', '--quiet']);
  return (file, text) => writeFileSync(join(folder, file), text);
}

const commit = (folder: string): void => {
  run(folder, ['git', 'add', '--all']);
  const identity = ['-c', 'user.name=a', '-c', 'user.email=a@b', '-c', 'commit.gpgsign=false'];
  run(folder, ['git', ...identity, 'commit', '--quiet', '--message=a']);
};

test('everything that prevents a release is listed, and nothing else', (t) => {
  const folder = temporaryFolder(t);
  const write = checkout(folder);
  const env: NodeJS.ProcessEnv = {};
  const reasons = (): string[] => obstacles(folder, ['npm'], undefined, env);
  const expected = [
    /not committed/,
    /no tag v1\.2\.0/,
    /no section "## 1\.2\.0"/,
    /no "repository"/,
    /no identity of a CI job/,
  ];
  const found = reasons();
  assert.equal(found.length, expected.length, found.join('\n'));
  for (const [i, pattern] of expected.entries()) assert.match(found[i]!, pattern);

  write('CHANGELOG.md', '# Changelog\n\n## 1.2.0\n');
  write('router/package.json', '{\n  "name": "turnout",\n  "version": "1.2.0",\n  "repository": "github:a/b"\n}\n');
  commit(folder);
  run(folder, ['git', 'tag', 'v1.2.0']);
  env['SIGSTORE_ID_TOKEN'] = 'token';
  assert.deepEqual(reasons(), []);
  assert.match(obstacles(folder, ['image'], undefined, env)[0]!, /--image REGISTRY\/NAME/);
  setVersion(folder, '1.2.1');
  write('router/package.json', '{\n  "name": "turnout",\n  "version": "1.2.0",\n  "repository": "github:a/b"\n}\n');
  assert.match(reasons()[0]!, /has the version 1\.2\.1: npm run release -- --set-version 1\.2\.0/);
});
