import { deepEqual, equal, match, throws } from 'node:assert/strict';
import { existsSync, lstatSync, mkdirSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { Pax } from 'tar';
import { TAR_END as END, tarEntry as entry } from '../../test/harness/archive.ts';
import { temporaryFolder } from '../../test/harness/temporary-folder.ts';
import { unpack } from './unpack.ts';

const asItIs = (bytes: Buffer): Buffer => bytes;

const LIMITS = { entries: 20, bytes: 10_000 };

/** Unpacks what the blocks are into `inner`, whose parent must stay as it is. */
function unpacked(
  t: TestContext,
  blocks: readonly Buffer[],
  zip: (bytes: Buffer) => Buffer = (bytes) => gzipSync(bytes),
) {
  const outer = temporaryFolder(t);
  const inner = join(outer, 'inner');
  mkdirSync(inner);
  const archive = join(outer, 'a.tar.gz');
  writeFileSync(archive, zip(Buffer.concat(blocks)));
  return {
    inner,
    unpack: () => unpack(archive, inner, LIMITS),
    refused: (words: RegExp) => {
      throws(() => unpack(archive, inner, LIMITS), words);
      deepEqual(readdirSync(outer).toSorted(), ['a.tar.gz', 'inner'], 'nothing was made beside the folder');
    },
  };
}

test('files are unpacked with their content, also into folders of the archive', (t) => {
  const { inner, unpack: run } = unpacked(t, [
    // As Python's tarfile writes `add(folder, arcname="")`.
    entry('/', '', { type: 'Directory', mode: 0o700 }),
    new Pax({ path: 'adapter_config.json', mtime: new Date(1.5) }).encode(),
    entry('adapter_config.json', '{"r": 8}'),
    entry('deep/er/', '', { type: 'Directory' }),
    entry('deep/er/x.bin', 'x'.repeat(1_000)),
    entry(`${'long'.repeat(22)}/${'name'.repeat(20)}`, 'y'),
    END,
  ]);
  run();
  equal(readFileSync(join(inner, 'adapter_config.json'), 'utf8'), '{"r": 8}');
  equal(readFileSync(join(inner, 'deep/er/x.bin'), 'utf8'), 'x'.repeat(1_000));
  equal(readFileSync(join(inner, 'long'.repeat(22), 'name'.repeat(20)), 'utf8'), 'y');
  equal(lstatSync(join(inner, 'adapter_config.json')).mode & 0o777, 0o644);
  equal(lstatSync(inner).mode & 0o777, 0o755 & ~process.umask());
});

test('an archive without gzip is unpacked too', (t) => {
  const { inner, unpack: run } = unpacked(t, [entry('a', 'b'), END], asItIs);
  run();
  equal(readFileSync(join(inner, 'a'), 'utf8'), 'b');
});

const hostile: Readonly<Record<string, readonly [readonly Buffer[], RegExp]>> = {
  'a path upwards': [[entry('../evil', 'x')], /leaves the folder/],
  'a path upwards in its middle': [[entry('a/../../evil', 'x')], /leaves the folder/],
  'a folder upwards': [[entry('../evil/', '', { type: 'Directory' })], /leaves the folder/],
  'only dots': [[entry('..', '', { type: 'Directory' })], /leaves the folder/],
  'an absolute path': [[entry('/tmp/turnout-evil', 'x')], /leaves the folder/],
  'a path upwards in an extended header': [
    [new Pax({ path: '../evil' }).encode(), entry('harmless', 'x')],
    /leaves the folder/,
  ],
  'a symbolic link': [[entry('link', '', { type: 'SymbolicLink', linkpath: '/etc' })], /SymbolicLink/],
  'a symbolic link and a file through it': [
    [entry('link', '', { type: 'SymbolicLink', linkpath: '..' }), entry('link/evil', 'x')],
    /SymbolicLink/,
  ],
  'a hard link': [[entry('link', '', { type: 'Link', linkpath: '../a.tar.gz' })], /a Link/],
  'a character device': [[entry('null', '', { type: 'CharacterDevice' })], /CharacterDevice/],
  'a block device': [[entry('disk', '', { type: 'BlockDevice' })], /BlockDevice/],
  'a FIFO': [[entry('pipe', '', { type: 'FIFO' })], /FIFO/],
  'a file in place of a folder': [[entry('a', 'x'), entry('a/b', 'x')], /./],
  'too many entries': [Array.from({ length: 21 }, (_, i) => entry(`f${i}`)), /more than 20 entries/],
  'too many folders': [
    Array.from({ length: 21 }, (_, i) => entry(`d${i}/`, '', { type: 'Directory' })),
    /more than 20 entries/,
  ],
  'too many bytes': [[entry('a', 'x'.repeat(6_000)), entry('b', 'x'.repeat(6_000))], /more than 10000 bytes/],
  'a size that it does not have': [[entry('a', 'x', { size: 9_000 })], /./],
  'a size beyond all bounds': [[entry('a', 'x', { size: 8 ** 11 - 1 })], /more than 10000 bytes/],
  'a size beyond all bounds in an extended header': [
    [new Pax({ path: 'a', size: 2 ** 52 }).encode(), entry('a', 'x')],
    /more than 10000 bytes/,
  ],
  'a damaged header': [[entry('a', 'x').fill(0xff, 0, 20)], /./],
  'no entry': [[END], /./],
};

for (const [what, [blocks, words]] of Object.entries(hostile)) {
  test(`refused: ${what}`, (t) => unpacked(t, [...blocks, END]).refused(words));
}

test('refused: what is not an archive, or only its first part', (t) => {
  const whole = gzipSync(Buffer.concat([entry('a', 'x'.repeat(5_000)), entry('b', 'y'.repeat(3_000)), END]), {
    level: 0,
  });
  for (const bytes of [
    Buffer.alloc(0),
    Buffer.from('not an archive'),
    Buffer.alloc(4_096, 'x'),
    gzipSync('not an archive'),
    whole.subarray(0, 1_000),
    whole.subarray(0, 7_000),
    // Within the data of the last file.
    whole.subarray(0, whole.length - 3_000),
    Buffer.from(whole).fill(0xff, 2_000, 2_100),
  ])
    unpacked(t, [bytes], asItIs).refused(/./);
});

test('a link that is in the folder already is not followed', (t) => {
  const { inner, unpack: run } = unpacked(t, [entry('out/evil', 'x'), END]);
  const outside = temporaryFolder(t);
  symlinkSync(outside, join(inner, 'out'));
  try {
    run();
  } catch (error) {
    match(String(error), /./);
  }
  equal(existsSync(join(outside, 'evil')), false);
});

test('a decompression bomb is refused early', (t) => {
  const bomb = gzipSync(Buffer.concat([entry('a', '', { size: 2 ** 32 }), Buffer.alloc(50_000_000)]));
  equal(bomb.length < 100_000, true);
  unpacked(t, [bomb], asItIs).refused(/more than 10000 bytes/);
});
