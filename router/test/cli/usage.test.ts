import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { promisify } from 'node:util';
import { parse } from 'yaml';
import { loadConfig } from '../../src/config/load.ts';
import { type OptionName, kebab, options } from '../../src/config/options.ts';
import { turnout } from './turnout.ts';

const { version } = JSON.parse(readFileSync(join(import.meta.dirname, '../../package.json'), 'utf8')) as {
  version: string;
};

function folderOf(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-usage-'));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

async function outcome(t: TestContext, args: readonly string[], env: NodeJS.ProcessEnv = {}) {
  const run = turnout(t, args, env);
  const code = await run.ended;
  return { code, output: run.output() };
}

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
  [['serve', '--disable-retries=true'], /option '--disable-retries' takes no value/],
  [['serve', '--unknown'], /unknown option '--unknown'/],
  [['serve', '--port'], /argument missing/],
  [['serve', '--port', 'abc'], /^turnout: --port: "abc" is not a number$/m],
  [['serve', '--port', '70000'], /^turnout: --port: 70000: must be at most 65535$/m],
  [['completion', 'tcsh'], /must be bash, zsh or fish/],
] as const) {
  test(`turnout ${args.join(' ')}: says what to do and ends with 2`, async (t) => {
    const { code, output } = await outcome(t, args);
    assert.match(output, words);
    assert.equal(code, 2);
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
    Object.keys(options).filter((name) => !all.output.includes(`--${kebab(name)}`)),
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
