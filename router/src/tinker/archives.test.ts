import { deepEqual, equal, match, notEqual, rejects } from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { recordedLog } from '../../test/harness/log-lines.ts';
import { temporaryFolder } from '../../test/harness/temporary-folder.ts';
import { writeArchive } from '../../test/harness/archive.ts';
import { until } from '../../test/harness/within.ts';
import { Archives } from './archives.ts';

/** A trainer's folder, and routers that unpack in it. */
function scene(t: TestContext) {
  const folder = temporaryFolder(t);
  const archive = join(folder, 'step-1.tar.gz');
  const { log, of } = recordedLog();
  return {
    folder,
    archive,
    start: (): Archives => {
      const archives = new Archives(log);
      t.after(() => archives.close());
      return archives;
    },
    /** How often something was unpacked. */
    count: (): number => of('an archive of weights was unpacked').length,
    others: (): string[] => readdirSync(folder).filter((name) => name !== 'step-1.tar.gz'),
  };
}

const contentIn = (found: { directory: string } | null): string => readFileSync(join(found!.directory, 'a'), 'utf8');

test('an archive is unpacked beside itself, once for all who ask, and again only when it changes', async (t) => {
  const { archive, start, count, others } = scene(t);
  writeArchive(archive, { a: 'one' });
  const first = start();
  const all = await Promise.all(Array.from({ length: 20 }, () => first.unpacked(archive)));
  const [{ directory } = { directory: '' }] = all.flatMap((found) => found ?? []);
  deepEqual(new Set(all.map((found) => found?.directory)), new Set([directory]));
  match(directory, /step-1\.unpacked-\w+-\w+$/);
  equal(contentIn(all[0]!), 'one');
  equal(count(), 1);
  equal(others().length, 1);

  await first.close();
  equal((await start().unpacked(archive))?.directory, directory, 'after a restart the folder is used');
  equal(count(), 1);

  writeArchive(archive, { a: 'two' });
  utimesSync(archive, 1, 1);
  const changed = await start().unpacked(archive);
  notEqual(changed?.directory, directory);
  equal(contentIn(changed), 'two');
  equal(count(), 2);
});

test('two routers that share the folder unpack into one directory', async (t) => {
  const { archive, start, others } = scene(t);
  writeArchive(archive, { a: 'x'.repeat(1_000_000) });
  const found = await Promise.all([start(), start(), start()].map((archives) => archives.unpacked(archive)));
  equal(new Set(found.map((each) => each?.directory)).size, 1);
  equal(others().length, 1, 'no part is left');
});

test('what is removed is unpacked again for who asks next', async (t) => {
  const { archive, start, count, others } = scene(t);
  writeArchive(archive, { a: 'one' });
  const archives = start();
  const { directory } = (await archives.unpacked(archive))!;
  const removed = archives.remove(directory);
  const again = archives.unpacked(archive);
  await removed;
  equal(contentIn(await again), 'one');
  equal(count(), 2);
  await archives.remove(directory);
  deepEqual(others(), []);
});

test('an archive that does not exist, that is damaged, and that is then whole', async (t) => {
  const { archive, start, others } = scene(t);
  const archives = start();
  equal(await archives.unpacked(archive), null);
  writeArchive(archive, { a: 'one', '../b': 'two' });
  await rejects(archives.unpacked(archive), /the path of its entry "\.\.\/b" leaves the folder/);
  writeFileSync(archive, 'not an archive');
  await rejects(archives.unpacked(archive));
  deepEqual(others(), [], 'nothing is left of what failed');
  writeArchive(archive, { a: 'one' });
  equal(contentIn(await archives.unpacked(archive)), 'one');
});

test('what a killed router left unfinished is removed, what another one is writing is not', async (t) => {
  const { folder, archive, start, others } = scene(t);
  writeArchive(archive, { a: 'one' });
  const leave = (name: string, ageSecs: number): void => {
    mkdirSync(join(folder, name));
    writeFileSync(join(folder, name, 'a'), 'half');
    const at = Date.now() / 1000 - ageSecs;
    for (const path of [join(folder, name, 'a'), join(folder, name)]) utimesSync(path, at, at);
  };
  leave('step-0.unpacked-1-1.part-old', 3_600);
  leave('step-1.unpacked-1-1.part-new', 60);
  leave('step-2.part-of-the-trainer', 3_600);
  const { directory } = (await start().unpacked(archive))!;
  deepEqual(
    others().filter((name) => !directory.endsWith(name)),
    ['step-1.unpacked-1-1.part-new', 'step-2.part-of-the-trainer'],
  );
});

test('a router that closes does not wait, and leaves no part', async (t) => {
  const { folder, archive, start, others } = scene(t);
  writeArchive(archive, { a: '0'.repeat(256_000_000) }, 1);
  for (const hasBegun of [() => true, () => others().some((name) => existsSync(join(folder, name, 'a')))]) {
    await until('a router closed before it was done', async () => {
      const archives = start();
      const unpacked = archives.unpacked(archive).catch((error: unknown) => {
        match(String(error), /closing/);
        return null;
      });
      while (!hasBegun()) await new Promise((resolve) => setImmediate(resolve));
      await archives.close();
      const found = await unpacked;
      // The machine stood still before `close`.
      if (found !== null) rmSync(found.directory, { recursive: true });
      return found === null;
    });
    deepEqual(others(), []);
  }
});
