import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { test } from 'node:test';

const source = resolve(import.meta.dirname, '../../src');

/** The folders in import order: a file imports from its own folder and from those before it. */
const order = [
  'kit',
  'config',
  'threads',
  'wire',
  'generation',
  'engines',
  'fleet',
  'placed-request.ts',
  // The record of an exchange names its plugins, and a plugin is called with the record: one entry.
  'exchange.ts plugin.ts phases',
  'weights',
  'classify',
  'admit',
  'choose',
  'forward',
  'observe',
  'resume',
  'pipeline.ts stages.ts ends.ts',
  'listen',
  'picker',
  'plugins',
  'recorder',
  'swap',
  'rollout-fields',
  'tinker',
  'admin',
  'launch',
  'batch',
  'assembly',
  'router.ts',
  'cli',
  'index.ts',
];

const filesOf = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'));
const files = filesOf(source);
const sources = files.filter((file) => !file.endsWith('.test.ts'));

function rankOf(file: string): number {
  const first = file.split('/')[0]!;
  return order.findIndex((folders) => folders.split(' ').includes(first));
}

function importsOf(file: string): string[] {
  const text = readFileSync(join(source, file), 'utf8');
  return [...text.matchAll(/\b(?:from|import)\b\s*\(?\s*['"](\.[^'"]+)['"]/g)].map((match) =>
    relative(source, resolve(dirname(join(source, file)), match[1]!)),
  );
}

test('every file is in a folder of the list', () => {
  assert.deepEqual(
    files.filter((file) => rankOf(file) < 0),
    [],
  );
});

test('a file imports from its own folder and from those before it', () => {
  const wrong = sources.flatMap((file) =>
    importsOf(file)
      .filter((imported) => rankOf(imported) > rankOf(file))
      .map((imported) => `${file} → ${imported}`),
  );
  assert.deepEqual(wrong, []);
  assert.ok(sources.flatMap(importsOf).length > 100, 'the imports were really read');
});

test('only the pipeline and the composition root know the forwarder', () => {
  const users = sources.filter((file) => importsOf(file).includes('forward/forward.ts'));
  assert.deepEqual(users.toSorted(), ['assembly/request-path.ts', 'pipeline.ts', 'stages.ts']);
});

test('placement knows no sockets, bodies and exchanges, and the request path knows nothing else of its folder', () => {
  const others = /^(wire|phases|classify|admit)\/|^exchange\.ts$/;
  const ofChoose = sources.filter((file) => file.startsWith('choose/'));
  const users = ofChoose.filter((file) => importsOf(file).some((imported) => others.test(imported)));
  assert.deepEqual(users, ['choose/load-policy.ts'], 'a policy of a user gets the exchange');
  const path = sources.filter((file) => /^(pipeline|stages|ends)\.ts$|^forward\/(?!control\/)/.test(file));
  const used = new Set(path.flatMap(importsOf).filter((imported) => imported.startsWith('choose/')));
  assert.deepEqual([...used].toSorted(), ['choose/choose.ts', 'choose/reason-text.ts']);
});

test('only the sim verb imports the simulator, which imports no more of the router than tools and the names of control paths', () => {
  const simulator = resolve(source, '../../simulator/src');
  const isSimulator = (file: string): boolean => resolve(source, file).startsWith(`${simulator}/`);
  assert.deepEqual(
    sources.filter((file) => importsOf(file).some(isSimulator)),
    ['cli/sim.ts'],
  );
  const imported = filesOf(simulator)
    .map((file) => relative(source, join(simulator, file)))
    .filter((file) => !file.endsWith('.test.ts'))
    .flatMap(importsOf)
    .filter((file) => !isSimulator(file));
  assert.ok(imported.length > 0, 'the imports were really read');
  assert.deepEqual(
    imported.filter((file) => !/^(?:kit|wire)\/|^engines\/controls\.ts$/.test(file)),
    [],
  );
});

/** Imports of values, also those that are loaded when they are needed: imports of types alone are gone at run time. */
function valueImportsOf(file: string): string[] {
  const text = readFileSync(join(source, file), 'utf8');
  const named = [...text.matchAll(/^(?:import|export)\s+(?!type\b)(.*?)\s*from\s+'(\.[^']+)';$/gms)]
    .filter(([, names]) => !/^\{(?:\s*type [^,}]+,?)+\s*\}$/.test(names!))
    .map(([, , path]) => path!);
  const whole = [...text.matchAll(/\bimport\s*\(?\s*'(\.[^']+)'/g)].map(([, path]) => path!);
  return [...named, ...whole].map((path) => relative(source, resolve(dirname(join(source, file)), path)));
}

test('the router reaches the recorder through its plugins; tools read its stores and tokenizers', () => {
  const users = sources.filter(
    (file) => !file.startsWith('recorder/') && importsOf(file).some((imported) => imported.startsWith('recorder/')),
  );
  assert.deepEqual(
    users.filter((file) => !file.startsWith('cli/')),
    ['assembly/extensions.ts'],
  );
  assert.deepEqual(
    importsOf('assembly/extensions.ts')
      .filter((imported) => imported.startsWith('recorder/'))
      .toSorted(),
    ['recorder/tap/recorder.ts'],
  );
});

test('a sink before another one extends the class that passes everything on', () => {
  const implementing = sources.filter((file) => {
    const text = readFileSync(join(source, file), 'utf8');
    return /implements (?:Required<)?Sink\b/.test(text);
  });
  assert.deepEqual(implementing.toSorted(), [
    'wire/buffer-sink.ts',
    'wire/client-connection.ts',
    'wire/passing-sink.ts',
  ]);
});

test('code of the recorder runs on the thread that its folder names', () => {
  const sides = { tap: ['thread', 'replay'], thread: ['tap', 'replay'], shared: ['tap', 'thread', 'replay'] };
  for (const [side, others] of Object.entries(sides)) {
    const files = sources.filter((file) => file.startsWith(`recorder/${side}/`));
    assert.ok(files.flatMap(valueImportsOf).length > 2, side);
    const wrong = files.flatMap((file) =>
      valueImportsOf(file)
        .filter((imported) => others.some((other) => imported.startsWith(`recorder/${other}/`)))
        .map((imported) => `${file} → ${imported}`),
    );
    assert.deepEqual(wrong, []);
  }
});

test('files are small, shallow and named for what they are', () => {
  const lengths = sources
    .map((file) => readFileSync(join(source, file), 'utf8').split('\n').length)
    .toSorted((a, b) => a - b);
  assert.ok(lengths[Math.floor(lengths.length / 2)]! <= 100, `median ${lengths[Math.floor(lengths.length / 2)]}`);
  assert.ok(lengths[Math.floor(lengths.length * 0.9)]! <= 250, `p90 ${lengths[Math.floor(lengths.length * 0.9)]}`);
  assert.ok(lengths.at(-1)! <= 400, `longest ${lengths.at(-1)}`);
  const pipeline = readFileSync(join(source, 'pipeline.ts'), 'utf8').split('\n').length;
  assert.ok(pipeline <= 150, `pipeline.ts is the picture of the product: ${pipeline} lines`);
  assert.deepEqual(
    files.filter((file) => file.split('/').length > 4),
    [],
  );
  assert.deepEqual(
    files.filter((file) => /(^|\/)(utils?|helpers?|types|common)(\/|\.ts$)/i.test(file)),
    [],
  );
  const words = sources.flatMap((file) =>
    [
      ...readFileSync(join(source, file), 'utf8').matchAll(/(?:class|interface|type) \w*(?:Manager|Service|Impl)\b/g),
    ].map(([word]) => `${file}: ${word}`),
  );
  assert.deepEqual(words, []);
});

test('state of an exchange is in the exchange: a StateKey names it, no weak map', () => {
  const weak = sources.flatMap((file) =>
    [
      ...readFileSync(join(source, file), 'utf8').matchAll(
        /\bWeak(?:Map|Set)<(?:Exchange(?:View)?|PlacedRequest|object)\b/g,
      ),
    ].map(([found]) => `${file}: ${found}`),
  );
  assert.deepEqual(weak, []);
});

/** Files of at most 25 lines with one importer and no test of their own, which read as well in their importer. */
test('few files are so small that their importer could hold them', () => {
  const importers = Map.groupBy(
    sources.flatMap((file) => [...new Set(importsOf(file))]),
    (imported) => imported,
  );
  const small = sources.filter(
    (file) =>
      importers.get(file)?.length === 1 &&
      readFileSync(join(source, file), 'utf8').split('\n').length <= 26 &&
      !files.includes(file.replace(/\.ts$/, '.test.ts')),
  );
  assert.ok(small.length <= 5, small.join(' '));
});
