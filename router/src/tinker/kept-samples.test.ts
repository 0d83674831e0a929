import { deepEqual, equal } from 'node:assert/strict';
import { existsSync, mkdirSync, rmSync, unlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { recordedLog } from '../../test/harness/log-lines.ts';
import { temporaryFolder } from '../../test/harness/temporary-folder.ts';
import { KeptSamples } from './kept-samples.ts';

const idOf = (number: number): string => `turnout-1-${number.toString(36)}-000000000000000000`;

async function scene(t: TestContext, count: number) {
  const dataDir = temporaryFolder(t);
  const { log, of } = recordedLog('error');
  const kept = new KeptSamples(dataDir, log);
  const pathOf = (number: number): string => join(dataDir, 'tinker-samples', idOf(number));
  const body = Buffer.from('{}');
  for (let i = 0; i < count; i++) await kept.keep({ id: idOf(i), tenant: '', target: '', body });
  return { kept, pathOf, of };
}

test('files that the router before an upgrade removes meanwhile are left out', async (t) => {
  const { kept, pathOf, of } = await scene(t, 4);
  const loaded: string[] = [];
  for (const { id } of kept.load()) {
    loaded.push(id);
    // Those after it, of which the generator has the names.
    if (id === idOf(1)) unlinkSync(pathOf(2));
  }
  deepEqual(loaded, [idOf(0), idOf(1), idOf(3)]);
  equal(kept.bodyOf(idOf(2)), null);
  equal(kept.bodyOf(idOf(3))?.toString(), '{}');
  deepEqual(of('--data-dir: a Tinker sample was not read'), []);
});

test('a file that can not be read is logged and left out', async (t) => {
  const { kept, pathOf, of } = await scene(t, 2);
  mkdirSync(pathOf(2));
  deepEqual(
    [...kept.load()].map(({ id }) => id),
    [idOf(0), idOf(1)],
  );
  equal(of('--data-dir: a Tinker sample was not read').length, 1);
});

test('a file that is not whole is removed once no router can be writing it', async (t) => {
  const { kept, pathOf } = await scene(t, 2);
  for (const i of [0, 1]) writeFileSync(pathOf(i), '{"tenant":"","bytes":10}\n{"pro');
  utimesSync(pathOf(0), 1, 1);
  deepEqual([...kept.load()], []);
  await kept.close();
  deepEqual([existsSync(pathOf(0)), existsSync(pathOf(1))], [false, true]);
});

test('a disk that takes no folder at the start loses no sample that comes when it takes one', async (t) => {
  const dataDir = temporaryFolder(t);
  const { log, of } = recordedLog('error');
  const inTheWay = join(dataDir, 'tinker-samples');
  const sample = { id: idOf(0), tenant: 'a', target: '', body: Buffer.from('{}') };
  // As on a full disk, but also for root: nothing can be made there.
  writeFileSync(inTheWay, '');
  const kept = new KeptSamples(dataDir, log);
  await kept.keep(sample);
  equal(of('--data-dir: a Tinker sample was not written').length, 1);
  rmSync(inTheWay);
  deepEqual([...kept.load()], []);
  await kept.keep(sample);
  deepEqual([...new KeptSamples(dataDir, log).load()], [sample]);
  await kept.close();
});
