import assert from 'node:assert/strict';
import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { temporaryFolder } from '../../../../test/harness/temporary-folder.ts';
import { ExpertsFiles } from './experts-files.ts';

const piece = (key: number) => {
  const bytes = new Uint8Array(new SharedArrayBuffer(8)).fill(0x41);
  return { key, cut: 0, form: 'base64', bytes } as const;
};

test('a disk that nothing can be removed from any more ends nothing', (t) => {
  const dataDir = temporaryFolder(t);
  const files = new ExpertsFiles(dataDir);
  files.take(piece(1));
  files.take(piece(2));
  const folder = join(dataDir, 'experts');
  const [part] = readdirSync(folder);
  rmSync(join(folder, part!), { recursive: true });
  writeFileSync(join(folder, part!), 'no folder');
  files.drop(1);
  files.close();
  assert.equal(files.keep(1, 0), null);
});
