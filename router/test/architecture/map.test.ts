import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

const root = join(import.meta.dirname, '../../..');
const page = readFileSync(join(root, 'docs/internals/map.md'), 'utf8');

/** The first column of the table under a heading. */
function foldersOf(heading: string): string[] {
  const [, section = ''] = page.split(`\n## ${heading}\n`);
  return [...section.split('\n## ')[0]!.matchAll(/^\| `([\w-]+)` \|/gm)].map(([, name]) => name!);
}

const notOurs = new Set(['node_modules', 'out', 'bin', 'dist']);

for (const [heading, path] of [
  ['The repository', '.'],
  ['router/src', 'router/src'],
  ['simulator/src', 'simulator/src'],
  ['bench', 'bench'],
  ['router/test', 'router/test'],
] as const) {
  test(`the map of the code names each folder of ${path}, and no other`, () => {
    const folders = readdirSync(join(root, path), { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && !entry.name.startsWith('.') && !notOurs.has(entry.name))
      .map(({ name }) => name);
    assert.deepEqual(foldersOf(heading).toSorted(), folders.toSorted());
  });
}
