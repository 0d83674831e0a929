import { ok } from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';

const MAX_GZIP_KB = 60;

test('the page is small', (t) => {
  const dist = join(import.meta.dirname, '../../router/dist/dashboard');
  const files = globSync('**/*.{html,js,css}', { cwd: dist });
  const bytes = files.reduce((sum, file) => sum + gzipSync(readFileSync(join(dist, file))).length, 0);
  t.diagnostic(`${files.length} files, ${(bytes / 1_000).toFixed(1)} KB`);
  ok(files.length >= 3 && bytes < MAX_GZIP_KB * 1_000, `${files.join()}: ${bytes} bytes`);
});
