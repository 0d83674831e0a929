import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';

const source = resolve(import.meta.dirname, '../../src');
const codeOf = (file: string): string =>
  readFileSync(join(source, file), 'utf8').replace(/\/\*.*?\*\/|\/\/[^\n]*/gs, '');

test('no export is used by tests only', () => {
  const files = readdirSync(source, { recursive: true, encoding: 'utf8' }).filter((file) =>
    /(?<!\.test)\.ts$/.test(file),
  );
  const uses = new Map<string, number>();
  for (const file of files) {
    for (const [word] of codeOf(file).matchAll(/[\w$]+/g)) uses.set(word, (uses.get(word) ?? 0) + 1);
  }
  const exported = files
    .filter((file) => file !== 'index.ts')
    .flatMap((file) =>
      [...codeOf(file).matchAll(/^export (?:async )?(?:function\*?|class|interface|type|const|let) (\w+)/gm)].map(
        ([, name = '']) => [name, file] as const,
      ),
    );
  assert.ok(exported.length > 500, 'the exports were really read');
  assert.deepEqual(
    exported.filter(([name]) => uses.get(name) === 1),
    [],
  );
});
