import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { pages } from '../../../docs/generate.ts';
import { sources } from '../../../python/generate.ts';

for (const [file, page] of Object.entries(pages)) {
  test(`docs/reference/${file} says what the code says`, () => {
    const written = readFileSync(join(import.meta.dirname, '../../../docs/reference', file), 'utf8');
    assert.equal(written, page(), 'run: npm run docs');
  });
}

for (const [path, source] of Object.entries(sources)) {
  test(`${path} says what the code says`, () => {
    const written = readFileSync(join(import.meta.dirname, '../../..', path), 'utf8');
    assert.equal(written, source(), 'run: npm run docs');
  });
}
