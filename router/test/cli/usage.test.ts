import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { type TestContext, test } from 'node:test';
import { promisify } from 'node:util';
import { parse } from 'yaml';
import { loadConfig } from '../../src/config/load.ts';
import { type OptionName, kebab, options } from '../../src/config/options.ts';
import type { OptionSpec } from '../../src/config/options/option.ts';
import { turnout } from './turnout.ts';

const { version } = JSON.parse(readFileSync(join(import.meta.dirname, '../../package.json'), 'utf8')) as {
  version: string;
};

function folderOf(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-usage-'));
  // A router that still runs may write into it meanwhile: an error here would skip the hooks that end the router.
  t.after(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 20 }));
  return folder;
}

async function outcome(t: TestContext, args: readonly string[], env: NodeJS.ProcessEnv = {}) {
  const run = turnout(t, args, env);
  const code = await run.ended;
  return { code, output: run.output() };
}

test('turnout export --version selects weights', async (t) => {
  const args = ['export', '--format', 'jsonl', '--data-dir', folderOf(t), '--version', 'step-1'];
  const { code, output } = await outcome(t, args);
  assert.match(output, /no trajectories were captured/);
  assert.equal(code, 2);
});

test('--version names the release, Node.js and the engines', async (t) => {
  const { code, output } = await outcome(t, ['--version']);
  assert.equal(code, 0);
  assert.ok(output.startsWith(`turnout ${version}\nNode.js ${process.versions.node}\n`), output);
  assert.match(output, /SGLang \d.*vLLM \d/);
});

for (const [args, words] of [
  [['sreve'], /there is no command "sreve": did you mean "serve"\?/],
  [['http://127.0.0.1:41001'], /"http:\/\/127\.0\.0\.1:41001" is not a command: give engines as --worker-urls/],
  [['serve', 'http://127.0.0.1:41001'], /unexpected argument 'http:.*': give engines as --worker-urls/],
  [['serve', 'http://a:1', 'http://b:1'], /unexpected argument 'http:.*': give engines as --worker-urls/],
  [['explain', 'rollout-3', 'http://a:1'], /unexpected argument 'http:.*': give the router as --url http:/],
  [['swap', 'step-7', 'a:1'], /unexpected argument 'a:1': give the router as --url http:/],
  [['serve', '--disable-retries=true'], /option '--disable-retries' takes no value/],
  [['serve', '--unknown'], /unknown option '--unknown'/],
  [['serve', '--port'], /argument missing/],
  [['serve', '--api-key', '--host', '127.0.0.1'], /option '--api-key <keys\.\.\.>' argument missing/],
  [['serve', '--worker-urls', '--check'], /option '--worker-urls <urls\.\.\.>' argument missing/],
  [['serve', '--port', 'abc'], /^turnout: --port: "abc" is not a number$/m],
  [['serve', '--port', '70000'], /^turnout: --port: 70000: must be at most 65535$/m],
  [['completion', 'tcsh'], /must be bash, zsh or fish/],
  [['--policy', 'rolout'], /--policy: no such policy: did you mean "rollout"\? Choose rollout, /],
  [['--policy', 'best'], /--policy: no such policy\. Choose rollout, /],
  [['--log-format', 'jsonn'], /--log-format: "jsonn": must be text or json: did you mean "json"\?/],
  [['--log-format', 'x'], /--log-format: "x": must be text or json\n/],
  [['--polcy', 'rollout'], /unknown option '--polcy'\n\(Did you mean --policy\?\)/],
] as const) {
  test(`turnout ${args.join(' ')}: says what to do and ends with 2`, async (t) => {
    const { code, output } = await outcome(t, args);
    assert.match(output, words);
    assert.equal(code, 2);
  });
}

test('turnout alone says what to run and ends with 2; with an option as a variable it serves', async (t) => {
  const names = Object.keys(process.env).filter((name) => name.startsWith('TURNOUT_'));
  const { code, output } = await outcome(t, [], Object.fromEntries(names.map((name) => [name, undefined])));
  assert.match(output, /^ {2}(npx )?turnout serve --worker-urls http:\/\/host/m);
  assert.match(output, /^ {2}(npx )?turnout --help /m);
  assert.equal(code, 2);
  const configured = turnout(t, [], { TURNOUT_PORT: '0', TURNOUT_PROMETHEUS_PORT: '0' });
  await configured.says(/listening on http/);
});

for (const args of [['completion', 'bash'], ['--help', 'all'], ['--version'], ['--print-config'], ['--check']]) {
  test(`turnout ${args.join(' ')}: ends without an error when its output is not read to the end`, async (t) => {
    const run = turnout(t, args);
    run.child.stdout!.destroy();
    assert.equal(await run.ended, 0);
    assert.equal(run.output(), '');
  });
}

test('--help lists few options, --help all every one', async (t) => {
  const few = await outcome(t, ['serve', '--help']);
  assert.equal(few.code, 0);
  const listed = (output: string) =>
    Object.keys(options).filter((name) => new RegExp(`^ +--${kebab(name)} `, 'm').test(output));
  assert.ok(listed(few.output).includes('workerUrls'));
  assert.ok(listed(few.output).length <= 12, listed(few.output).join());
  assert.match(few.output, /more options: turnout serve --help all/);
  const all = await outcome(t, ['serve', '--help', 'all']);
  assert.deepEqual(
    Object.entries<OptionSpec>(options)
      .filter(([name, { isFileOnly }]) => isFileOnly !== true && !all.output.includes(`--${kebab(name)}`))
      .map(([name]) => name),
    [],
  );
});

test('--check does what a start does before it opens a port', async (t) => {
  const folder = folderOf(t);
  const dataDir = join(folder, 'data');
  const good = await outcome(t, ['--check', '--data-dir', dataDir]);
  assert.deepEqual(good, { code: 0, output: 'The configuration is valid.\n' });
  assert.equal(existsSync(dataDir), false, 'nothing was made');
  writeFileSync(join(folder, 'file'), '');
  for (const [args, words] of [
    [['--plugin', 'radix-tree', '--tokenizer-path', '/nope'], /--tokenizer-path \/nope: there is no such file/],
    [['--data-dir', join(folder, 'file')], /--data-dir .*file is a file, not a folder/],
    [['--api-key-file', '/nope'], /--api-key-file \/nope/],
    [['--policy', './none.ts'], /none\.ts/],
    [['--worker-urls', 'ftp://x'], /--worker-urls: "ftp:\/\/x" is neither http nor https/],
    [['--worker-urls', 'http://1.2.3.4', '--worker-allow', '10.0.0.0/8'], /--worker-urls: "1\.2\.3\.4" is not allowed/],
    [['--pd-disaggregation', '--prefill', 'http://h:1', '--decode', 'http://h:2@1'], /--decode: A data-parallel rank/],
  ] as const) {
    const { code, output } = await outcome(t, ['--check', ...args]);
    assert.match(output, words);
    assert.equal(code, 2, output);
  }
});

test('--print-config prints a file for --config, without keys, and where values come from', async (t) => {
  const folder = folderOf(t);
  const file = join(folder, 'turnout.yaml');
  writeFileSync(file, 'policy: random\napi-key: s3cret\n');
  const { code, output } = await outcome(t, ['--config', file, '--print-config', '--port', '5'], {
    TURNOUT_HOST: 'localhost',
  });
  assert.equal(code, 0);
  assert.match(output, /^port: 5 {2}# --port$/m);
  assert.match(output, /^host: "localhost" {2}# TURNOUT_HOST$/m);
  assert.match(output, /^policy: "random" {2}# .*turnout\.yaml line 1: policy$/m);
  assert.match(output, /^prometheus-port: 29000 {2}# default$/m);
  assert.match(output, /^# data-dir: {2}# not set$/m);
  assert.doesNotMatch(output, /s3cret/);
  const again = join(folder, 'again.yaml');
  writeFileSync(again, output.replace(/^api-key: .*$/m, ''));
  assert.equal(loadConfig({}, {}, again).port, 5);
});

test('a misspelled variable is a warning', async (t) => {
  const { code, output } = await outcome(t, ['--check'], { TURNOUT_PROT: '1' });
  assert.match(output, /TURNOUT_PROT is not an option: did you mean TURNOUT_PORT\?/);
  assert.equal(code, 0);
});

test('bash completes commands, options and fixed values', async (t) => {
  const { code, output } = await outcome(t, ['completion', 'bash']);
  assert.equal(code, 0);
  const script = join(folderOf(t), 'completion');
  writeFileSync(script, output);
  const complete = async (...words: string[]): Promise<string> => {
    const line = `source ${script}; COMP_WORDS=(${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length - 1}; _turnout; echo "\${COMPREPLY[@]}"`;
    return (await promisify(execFile)('bash', ['-c', line])).stdout.trim();
  };
  assert.equal(await complete('turnout', 'ser'), 'serve');
  assert.equal(await complete('turnout', 'serve', '--worker-u'), '--worker-urls');
  assert.match(await complete('turnout', 'serve', '--policy', ''), /\brollout\b/);
  assert.match(await complete('turnout', 'serve', '--kv-connector', ''), /^nixl mooncake$/);
});

test('zsh and fish get scripts with every command', async (t) => {
  for (const shell of ['zsh', 'fish']) {
    const { output } = await outcome(t, ['completion', shell]);
    for (const verb of ['serve', 'doctor', 'slime-router']) assert.ok(output.includes(verb), shell);
  }
});

test('the example file has every option and is read when its lines are put in force', () => {
  const text = readFileSync(join(import.meta.dirname, '../../../docs/reference/turnout.example.yaml'), 'utf8');
  const settings = [...text.matchAll(/^# ([\w-]+):(?: (.*))?$/gm)].map(([, key, value]) => [key!, value] as const);
  const names = Object.keys(options) as OptionName[];
  assert.deepEqual(
    settings.map(([key]) => key),
    names.map(kebab),
  );
  const defaults = loadConfig({}, {}, undefined);
  for (const [i, [key, value]] of settings.entries()) {
    if (value === undefined) continue;
    assert.deepEqual((parse(`${key}: ${value}`) as Record<string, unknown>)[key], defaults[names[i]!], key);
  }
});

test('sim says which port is taken and leaves no engine running', async (t) => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const { port } = server.address() as { port: number };
  const { code, output } = await outcome(t, ['sim', '--workers', '1', '--first-port', String(port)]);
  assert.match(output, new RegExp(`--first-port ${port}: port ${port}: another process listens there`));
  assert.doesNotMatch(output, /at .*\.ts/);
  assert.equal(code, 2);
});

test('sim says that a file is not a folder for the tokenizer', async (t) => {
  const file = join(folderOf(t), 'file');
  writeFileSync(file, '');
  const { code, output } = await outcome(t, ['sim', '--write-tokenizer', file]);
  assert.match(output, /^turnout: --write-tokenizer .*file is a file, not a folder$/m);
  assert.equal(code, 2);
});

test('a worker URL that ends with /v1 is refused with the one that is meant', async (t) => {
  const { code, output } = await outcome(t, [
    'serve',
    '--port',
    '0',
    '--prometheus-port',
    '0',
    '--worker-urls',
    'http://127.0.0.1:41001/v1',
  ]);
  assert.match(output, /ends before \/v1\. Did you mean http:\/\/127\.0\.0\.1:41001\?/);
  assert.equal(code, 2);
});

test('a second router on one data folder says so', async (t) => {
  const dataDir = folderOf(t);
  const args = ['serve', '--port', '0', '--prometheus-port', '0', '--data-dir', dataDir];
  const first = turnout(t, args);
  await first.says(/listening on/);
  assert.doesNotMatch(first.output(), /another router/);
  const second = turnout(t, args);
  await second.says(new RegExp(`another router \\(pid ${first.child.pid}\\) uses --data-dir`));
});

test('--capture-bodies without a plugin that captures is a warning', async (t) => {
  const run = turnout(t, ['serve', '--port', '0', '--prometheus-port', '0', '--capture-bodies']);
  await run.says(/--capture-bodies has no effect without a plugin that captures/);
});

test('an old Node.js in a checkout prints how to use the one that npm installed', async () => {
  const bin = readFileSync(join(import.meta.dirname, '../../bin/turnout.js'), 'utf8');
  const old = bin
    .replace("process.versions.node.split('.')", "'20.19.0'.split('.')")
    .replaceAll('__dirname', JSON.stringify(join(import.meta.dirname, '../../bin')));
  const failed = await promisify(execFile)(process.execPath, [
    '--input-type=commonjs',
    '-e',
    old.replace(/^#!.*/, ''),
  ]).catch((error: unknown) => error as { code: number; stderr: string });
  assert.ok('code' in failed);
  assert.equal(failed.code, 1);
  assert.match(failed.stderr, /npx turnout/);
});
