import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { watch, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { temporaryFolder } from '../../../../test/harness/temporary-folder.ts';

/** SQLite reads its environment once, so a process of its own writes more than SQLite's page cache holds (2 MB) in one transaction. */
const WRITE = `
  import { SqliteStore } from ${JSON.stringify(import.meta.resolve('./sqlite.ts'))};
  import { turnOf } from ${JSON.stringify(import.meta.resolve('../../../../test/harness/turns.ts'))};
  const store = new SqliteStore(process.argv[1]);
  store.put(Array.from({ length: 16 }, () => turnOf({ ids: new Int32Array(100_000) })));
  store.close();
`;

test('a large transaction needs no file outside of the data folder: other folders may be read-only', async (t) => {
  const folder = temporaryFolder(t);
  const made: string[] = [];
  const watcher = watch(folder);
  t.after(() => watcher.close());
  const isSeen = new Promise<void>((resolve) => {
    watcher.on('change', (_type, name) => (name === 'last' ? resolve() : made.push(String(name))));
  });
  const child = spawn(process.execPath, ['--input-type=module', '--eval', WRITE, temporaryFolder(t)], {
    env: { ...process.env, SQLITE_TMPDIR: folder, TMPDIR: folder },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const [code] = (await once(child, 'exit')) as [number | null];
  assert.equal(code, 0);
  // Events come in order: this one is the last.
  writeFileSync(join(folder, 'last'), '');
  await isSeen;
  assert.deepEqual(made, []);
});
