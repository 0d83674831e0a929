import assert from 'node:assert/strict';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { folderOf, moduleOf } from '../../test/harness/plugin-module.ts';
import { recorderPlugins } from '../recorder/tap/recorder.ts';
import { loadPlugin } from './load.ts';

const load = (entry: string) =>
  loadPlugin(entry, recorderPlugins(null, { inFlight: () => [], isDraining: () => false, endSession: () => {} }));

/** Loads an entry as a router that was started in this folder. */
async function loadIn(t: TestContext, folder: string, entry: string) {
  const before = process.cwd();
  t.after(() => process.chdir(before));
  process.chdir(folder);
  try {
    return await load(entry);
  } finally {
    process.chdir(before);
  }
}

const EMPTY = '{ name: "mine", create: () => ({}) }';

test('a file by its path, in TypeScript and in JavaScript of either kind', async (t) => {
  for (const [file, text] of [
    ['mine.ts', `const name: string = 'mine'; export default { name, create: () => ({}) };`],
    ['mine.mjs', `export default ${EMPTY};`],
    ['mine.cjs', `module.exports = ${EMPTY};`],
    ['old.cjs', `Object.defineProperty(exports, '__esModule', { value: true }); exports.default = ${EMPTY};`],
  ] as const) {
    const folder = folderOf(t, { [file]: text });
    for (const entry of [join(folder, file), `./${file}`, file]) {
      const { definition, options } = await loadIn(t, folder, entry);
      assert.deepEqual([definition.name, options], ['mine', {}], entry);
    }
  }
});

test('a package of the folder in which the router was started, or of one above it', async (t) => {
  const folder = folderOf(t, {
    'node_modules/plain/index.js': `module.exports = ${EMPTY};`,
    'node_modules/@scope/modern/package.json': JSON.stringify({
      name: '@scope/modern',
      type: 'module',
      exports: { '.': { types: './x.d.ts', import: './lib/main.js' } },
    }),
    'node_modules/@scope/modern/lib/main.js': `export default ${EMPTY};`,
    'node_modules/with.dot/package.json': JSON.stringify({ main: 'a.js' }),
    'node_modules/with.dot/a.js': `module.exports = ${EMPTY};`,
    'deep/er/x.txt': '',
  });
  for (const name of ['plain', '@scope/modern', 'with.dot']) {
    for (const place of [folder, join(folder, 'deep/er')]) {
      assert.equal((await loadIn(t, place, name)).definition.name, 'mine', name);
    }
  }
});

test('what can not be had is refused in words', async (t) => {
  const folder = folderOf(t, {});
  for (const [entry, words] of [
    ['slime.hub.Middleware', /"slime\.hub\.Middleware" is a name of Python.*Port it.*write-a-plugin/],
    ['nobody', /"nobody" is no built-in plugin.*no file \(write \.\/nobody.*no package that .* has installed/],
    ['@scope/nobody', /no package/],
    ['toString', /no built-in plugin/],
    ['__proto__', /no built-in plugin/],
    ['./not/there.ts', /"\.\/not\/there\.ts" can't be loaded: ENOENT/],
  ] as const) {
    await assert.rejects(loadIn(t, folder, entry), words, entry);
  }
  for (const [text, words] of [
    ['1', /has no default export like \{ name, create/],
    ['{ name: "x" }', /has no default export like/],
    ['{ name: "", create() {} }', /has no default export like/],
    ['{ name: "x", create() {}, options: { limit: 8 } }', /options that are no zod schema/],
    ['(', /mine\.ts" can't be loaded: .*\(line \d+\)$/],
    ['(() => { throw new Error("on its own"); })()', /can't be loaded: on its own \(line 1\)$/],
  ] as const) {
    await assert.rejects(load(moduleOf(t, text)), words, text);
  }
  const script = folderOf(t, { 'mine.mjs': '\nexport default {\n  name: "x",,\n};' });
  await assert.rejects(loadIn(t, script, './mine.mjs'), /can't be loaded: Unexpected token ',' \(line 3\)$/);
});

test('options are checked by its schema, and a wrong one is named', async (t) => {
  const path = moduleOf(
    t,
    `{
      name: 'mine',
      options: (z) => z.strictObject({ limit: z.int().default(4), of: z.strictObject({ a: z.string() }).optional() }),
      create: () => ({}),
    }`,
  );
  assert.deepEqual((await load(path)).options, { limit: 4 });
  assert.deepEqual((await load(`${path}:{"limit": 8, "of": {"a": "x, :{"}}`)).options, {
    limit: 8,
    of: { a: 'x, :{' },
  });
  for (const [text, words] of [
    ['{"limit":"8"}', /mine\.ts": option "limit": "8" is not a number$/],
    ['{"of":{"a":1}}', /option "of\.a": 1 is not a text$/],
    ['{"of":{"b":1}}', /option "of\.a": is missing; option "of": has no member "b"$/],
    ['{"limmit":8}', /mine\.ts": it has no option "limmit"$/],
    ['{"limit":8', /its options are no JSON: /],
    ['{limit:8}', /its options are no JSON: /],
  ] as const) {
    await assert.rejects(load(`${path}:${text}`), words, text);
  }
  for (const [schema, words] of [
    [
      "() => { throw new Error('no schema today'); }",
      /mine\.ts" can't make the schema of its options: no schema today/,
    ],
    ['() => 5', /mine\.ts" has options that are no zod schema/],
  ] as const) {
    await assert.rejects(load(moduleOf(t, `{ name: 'mine', options: ${schema}, create: () => ({}) }`)), words);
  }
  const without = moduleOf(t, EMPTY);
  await assert.rejects(load(`${without}:{"limit":8}`), /takes no options/);
});

test('a schema of the module’s own does as well', async (t) => {
  const path = moduleOf(
    t,
    `{
      name: 'mine',
      options: {
        safeParse: (value) =>
          value.limit === undefined
            ? { success: false, error: { issues: [{ path: ['limit'], message: 'is needed' }] } }
            : { success: true, data: value },
      },
      create: () => ({}),
    }`,
  );
  await assert.rejects(load(path), /option "limit": is needed/);
  assert.deepEqual((await load(`${path}:{"limit":1}`)).options, { limit: 1 });
});
