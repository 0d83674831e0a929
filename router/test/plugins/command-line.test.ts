import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { turnout } from '../cli/turnout.ts';
import { folderOf, moduleOf } from '../harness/plugin-module.ts';
import { within } from '../harness/within.ts';

const anyPorts = ['--port', '0', '--prometheus-port', '0'];
const listening = /listening on (http:\/\/\S+?:\d+)"/;

/** Answers who it is at `/NAME`. */
const named = (name: string): string => `{
  name: '${name}',
  options: (z) => z.strictObject({ word: z.string().default('none') }),
  create: ({ word }) => ({ routes: ({ forClients }) => void forClients.get('/${name}', (c) => c.text(word)) }),
}`;

test('--plugin, several times and with options; by environment and by file too', async (t) => {
  const [a, b] = [moduleOf(t, named('a')), moduleOf(t, named('b'))];
  const file = join(
    folderOf(t, { 'turnout.yaml': `plugin:\n  - ${a}\n  - '${b}:{"word": "from, file"}'\n` }),
    'turnout.yaml',
  );
  for (const [flags, env, words] of [
    [['--plugin', `${a}:{"word": "x, y"}`, '--plugin', b], {}, ['x, y', 'none']],
    [[], { TURNOUT_PLUGIN: `${a}:{"word": "x y"} ${b}` }, ['x y', 'none']],
    [['--config', file], {}, ['none', 'from, file']],
  ] as const) {
    const run = turnout(t, ['serve', ...anyPorts, ...flags], env);
    const url = (await run.says(listening))[1]!;
    const said = await Promise.all(['a', 'b'].map(async (name) => (await fetch(`${url}/${name}`)).text()));
    assert.deepEqual(said, words);
  }
});

test('what can not be loaded stops the start: exit code 2, the file and the reason', async (t) => {
  const path = moduleOf(t, named('a'));
  for (const [args, words] of [
    [['serve', '--plugin', './not-there.ts'], /turnout: The plugin "\.\/not-there\.ts" can't be loaded: ENOENT/],
    [['serve', '--plugin', `${path}:{"word":5}`], /mine\.ts": option "word": 5 is not a text/],
    [['serve', '--plugin', 'some.python.Middleware'], /is a name of Python/],
    [['slime-router', '--slime-router-middleware-paths', 'some.python.Middleware'], /is a name of Python/],
  ] as const) {
    const run = turnout(t, [...args, ...anyPorts]);
    assert.equal(await run.ended, 2, run.output());
    assert.match(run.output(), words);
  }
});

test('slime’s spelling and ours make one list', async (t) => {
  const [a, b] = [moduleOf(t, named('a')), moduleOf(t, named('b'))];
  const run = turnout(t, [
    'slime-router',
    ...anyPorts,
    '--host',
    '127.0.0.1',
    '--slime-router-middleware-paths',
    `${a}:{"word": "x, y"}`,
    '--plugin',
    b,
  ]);
  const url = (await run.says(listening))[1]!;
  const said = await Promise.all(['a', 'b'].map(async (name) => (await fetch(`${url}/${name}`)).text()));
  assert.deepEqual(said, ['x, y', 'none']);
});

test('a promise that a plugin forgets does not end the router', async (t) => {
  const path = moduleOf(
    t,
    `{
      name: 'forgetful',
      create: () => ({
        finished() {},
        routes: ({ forClients }) => void forClients.get('/forget', (c) => {
          void Promise.reject(new Error('forgotten'));
          return c.text('asked');
        }),
      }),
    }`,
  );
  const run = turnout(t, ['serve', ...anyPorts, '--plugin', path]);
  const url = (await run.says(listening))[1]!;
  assert.equal(await (await fetch(`${url}/forget`)).text(), 'asked');
  await run.says(/unhandled promise rejection \(1 since the start\), the router goes on: Error: forgotten/);
  assert.equal(await (await fetch(`${url}/liveness`)).text(), 'OK');
});

test('signals during a start that fails add nothing to its error', async (t) => {
  const waits = `{
    name: 'slow',
    async create() {
      process.stderr.write('the plugin waits\\n');
      await new Promise((resolve) => process.once('SIGTERM', resolve));
      throw new Error('no licence');
    },
  }`;
  const run = turnout(t, [...anyPorts, '--plugin', moduleOf(t, waits)]);
  await run.says(/the plugin waits/);
  run.child.kill('SIGHUP');
  run.child.kill('SIGTERM');
  assert.equal(await within(run.ended, 'the router ends'), 2);
  assert.match(run.output(), /The plugin .* can't be made: no licence/);
  assert.doesNotMatch(run.output(), /unhandled|\n {4}at /);
});
