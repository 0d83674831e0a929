import { deepEqual, equal, match } from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { temporaryFolder } from '../../test/harness/temporary-folder.ts';
import { SwapOwner } from './owner.ts';

const fail = (): void => {
  throw new Error('it waits');
};
const isLinux = process.platform === 'linux';

test('the router that was started last is the owner, once no other one is at work', { skip: !isLinux }, async (t) => {
  const folder = temporaryFolder(t);
  const [first, second] = [new SwapOwner(folder), new SwapOwner(folder)];
  await first.claim(fail);
  first.isAtWork = true;
  const waits = Promise.withResolvers<number>();
  let isClaimed = false;
  const claimed = second.claim(waits.resolve).then(() => (isClaimed = true));
  equal(await waits.promise, process.pid);
  deepEqual([isClaimed, first.isTaken], [false, false]);
  first.isAtWork = false;
  await claimed;
  deepEqual([first.isTaken, second.isTaken], [true, false]);
  // What it does no one asks for.
  first.isAtWork = true;
  first.release();
  equal(second.isTaken, false);
  second.release();
  deepEqual([first.isTaken, readdirSync(folder)], [false, []]);
});

test('a process that has ended is no owner, nor is a later one with its id', { skip: !isLinux }, async (t) => {
  const folder = temporaryFolder(t);
  const path = join(folder, 'swap.owner');
  const owner = new SwapOwner(folder);
  await owner.claim(fail);
  owner.isAtWork = true;
  const own = readFileSync(path, 'utf8');
  match(own, / at-work\n$/);
  const other = own.replace(/^\S+/, 'other');
  writeFileSync(path, other);
  equal(owner.isTaken, true);
  const child = spawn(process.execPath, ['--version'], { stdio: 'ignore' });
  await once(child, 'exit');
  for (const claim of [
    other.replace(` ${process.pid} `, ` ${child.pid} `),
    other.replace(/(\d+) at-work/, '1 at-work'),
    '',
    'x',
    'a b c d\n',
  ]) {
    writeFileSync(path, claim);
    equal(owner.isTaken, false, claim);
    await new SwapOwner(folder).claim(fail);
  }
});

test('without a data directory there is no other router', async () => {
  const owner = new SwapOwner(undefined);
  await owner.claim(fail);
  owner.isAtWork = true;
  equal(owner.isTaken, false);
  owner.release();
});
