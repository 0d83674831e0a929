import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
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

const tensor = (files: ExpertsFiles, key: number) => {
  files.take(piece(key));
  files.end(key, 0, '{"shape":[6],"dtype":"uint8"}');
  return files.keep(key, 0);
};

test('a router that starts on the folder of another one leaves its incomplete files', (t) => {
  const dataDir = temporaryFolder(t);
  const folder = join(dataDir, 'experts');
  const files = new ExpertsFiles(dataDir);
  t.after(() => files.close());
  files.take(piece(1));
  const [own] = readdirSync(folder);
  // As that of a process that runs, was killed, or is on another machine.
  const named = (pid: number, place: string): string => {
    const name = own!.replace(/^\.part-\d+_\w+?_/, (start) => {
      const [, here] = /_(\w+?)_/.exec(start)!;
      return `.part-${pid}_${place === '' ? here : place}_`;
    });
    mkdirSync(join(folder, name), { recursive: true });
    return name;
  };
  const running = named(process.ppid, '');
  const killed = named(spawnSync('true').pid, '');
  const elsewhere = named(process.ppid, 'elsewhere');
  const longAgo = named(process.ppid, 'longago');
  const hour = Date.now() / 1_000 - 3_700;
  for (const name of [own!, running, elsewhere]) utimesSync(join(folder, name), hour, hour);
  utimesSync(join(folder, longAgo), 1, 1);
  new ExpertsFiles(dataDir).close();
  assert.deepEqual(readdirSync(folder).toSorted(), [own!, running, elsewhere].toSorted(), killed);
});

test('a folder of incomplete files that something has removed is made again', (t) => {
  const dataDir = temporaryFolder(t);
  const files = new ExpertsFiles(dataDir);
  t.after(() => files.close());
  assert.notEqual(tensor(files, 1), null);
  const part = readdirSync(join(dataDir, 'experts')).find((name) => name.startsWith('.part-'));
  rmSync(join(dataDir, 'experts', part!), { recursive: true });
  assert.notEqual(tensor(files, 2), null);
  assert.equal(files.lost, 0);
});
