import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { filled, guidePath, guides, pages } from '../../../docs/generate.ts';
import { sources } from '../../../python/generate.ts';
import { chartFiles } from '../../../deploy/helm/generate.ts';
import { writeTokenizer } from '../../src/sim/tokens/tokenizer-files.ts';
import { startTestRouter } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

for (const [file, page] of Object.entries(pages)) {
  test(`docs/reference/${file} says what the code says`, () => {
    const written = readFileSync(join(import.meta.dirname, '../../../docs/reference', file), 'utf8');
    assert.equal(written, page(), 'run: npm run docs');
  });
}

for (const file of Object.keys(guides)) {
  test(`docs/guides/${file} says what the code says`, () => {
    const written = readFileSync(guidePath(file), 'utf8');
    assert.equal(written, filled(file, written), 'run: npm run docs');
  });
}

for (const [path, source] of Object.entries({ ...sources, ...chartFiles })) {
  test(`${path} says what the code says`, () => {
    const written = readFileSync(join(import.meta.dirname, '../../..', path), 'utf8');
    assert.equal(written, source(), 'run: npm run docs');
  });
}

test('every metric that a router with all built-in plugins exposes is in the reference, and label values are words', async (t) => {
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const router = await startTestRouter(t, { tokenizerPath, plugin: ['radix-tree', 'chat-sessions'] });
  const page = await (await fetch(`${router.url}/metrics`)).text();
  const names = [...page.matchAll(/^# TYPE (\S+)/gm)].map((match) => match[1]!);
  assert.ok(names.includes('turnout_radix_tree_nodes') && names.length > 50, names.join());
  const values = [...page.matchAll(/[{,](?:reason|outcome|code|failure|phase|kind|store)="([^"]*)"/g)].map(
    (match) => match[1]!,
  );
  assert.ok(values.includes('client_left') && values.length > 10, values.join());
  assert.deepEqual(
    values.filter((value) => !/^[a-z][a-z0-9_]*$/.test(value)),
    [],
    'label values are snake_case words',
  );
  const reference = readFileSync(join(import.meta.dirname, '../../../docs/reference/metrics.md'), 'utf8');
  assert.deepEqual(
    names.filter((name) => !reference.includes(`\`${name}\``)),
    [],
  );
});
