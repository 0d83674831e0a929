import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { existsSync, openSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { test } from 'node:test';
import { turnout } from '../cli/turnout.ts';
import { connectClient, request, send } from '../harness/client.ts';
import { post, startEngines } from '../harness/fleet.ts';
import { freePort } from '../harness/free-port.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';
import { program } from '../harness/program.ts';

const ports = ['--port', '0', '--prometheus-port', '0', '--disable-health-check'];
const listening = /listening on (http:\/\/127\.0\.0\.1:\d+)/;

interface Line {
  readonly level: string;
  readonly msg: string;
  readonly [field: string]: unknown;
}
const linesOf = (text: string): Line[] =>
  text
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Line);

const levels = ['debug', 'info', 'warning', 'error', 'critical'] as const;

for (const [at, level] of levels.entries()) {
  test(`--log-level ${level}: nothing below it is written`, async (t) => {
    const [engine] = await startEngines(t, 1);
    const folder = temporaryFolder(t);
    const file = join(folder, 'turnout.yaml');
    writeFileSync(file, `worker-urls: [${engine!.url}]\nprometheus-port: 0\ndisable-health-check: true\n`);
    // At critical nothing says where it listens.
    const port = await freePort();
    const run = turnout(t, ['--config', file, '--port', String(port), '--log-level', level]);
    const url = `http://127.0.0.1:${port}`;
    await until('it listens', () => connectClient(t, url).then(Boolean, () => false));
    await send(t, url, request('GET', '/hello'));
    // One line of each level from info to error.
    writeFileSync(file, `worker-urls: []\nport: ${port}\nprometheus-port: 1\nlog-level: ${level}\n`);
    run.child.kill('SIGHUP');
    await until(
      'it has reloaded',
      async () => (await send(t, url, request('GET', '/list_workers'))).text === '{"urls":[]}',
    );
    writeFileSync(file, 'no-such-option: 1\n');
    run.child.kill('SIGHUP');
    run.child.kill('SIGTERM');
    equal(await run.ended, 0);
    const written = new Set(linesOf(run.output()).map((line) => line.level));
    deepEqual(
      levels.filter((each) => written.has(each)),
      levels.slice(at).filter((each) => each !== 'critical'),
    );
  });
}

test('--log-dir: the log goes to files too, which rotate', async (t) => {
  const [engine] = await startEngines(t, 1);
  const folder = join(temporaryFolder(t), 'logs');
  const files = ['--log-dir', folder, '--log-max-bytes', '4096', '--log-max-files', '3', '--access-log'];
  const run = turnout(t, ['serve', ...ports, ...files, '--worker-urls', engine!.url]);
  const [, url] = await run.says(listening);
  const client = await connectClient(t, url!);
  for (let i = 0; i < 60; i++) {
    client.write(request('GET', `/hello/${i}`));
    await client.answer();
  }
  run.child.kill('SIGTERM');
  equal(await run.ended, 0);
  deepEqual(readdirSync(folder).toSorted(), ['turnout.log', 'turnout.log.1', 'turnout.log.2']);
  const [newest = '', ...older] = readdirSync(folder)
    .toSorted()
    .map((name) => readFileSync(join(folder, name), 'utf8'));
  for (const text of [newest, ...older]) ok(text.length <= 4_096 && linesOf(text).length > 0);
  ok(run.output().endsWith([...older.toReversed(), newest].join('')), 'the same lines in the same order');
  match(newest, /"msg":"drained"/);
});

test('--access-log: a line for each request, without bodies, queries and values of headers', async (t) => {
  const [engine] = await startEngines(t, 1);
  const run = turnout(t, ['serve', ...ports, '--access-log', '--worker-urls', engine!.url]);
  const [, url] = await run.says(listening);
  const secret = 'hush-hush';
  await send(
    t,
    url!,
    post(`/v1/completions?token=${secret}`, { prompt: secret }, [`authorization: ${secret}`, 'x-request-id: r1']),
  );
  await run.says(/"msg":"exchange"/);
  const line = linesOf(run.output()).find(({ msg }) => msg === 'exchange');
  const { time, ms, firstByteMs, ...rest } = line!;
  ok(Number(ms) >= Number(firstByteMs));
  match(String(time), /^\d{4}-/);
  deepEqual(rest, {
    level: 'info',
    requestId: 'r1',
    method: 'POST',
    path: '/v1/completions',
    worker: engine!.url,
    policy: 'rollout',
    reason: 'policy',
    status: 200,
    outcome: 'complete',
    attempts: 1,
    requestBytes: JSON.stringify({ prompt: secret }).length,
    msg: 'exchange',
  });
  equal(run.output().includes(secret), false);
});

test('--log-format text: lines for people; files stay json unless it is given', async (t) => {
  const [engine] = await startEngines(t, 1);
  const run = turnout(t, ['serve', ...ports, '--log-format', 'text', '--worker-urls', engine!.url]);
  const [, url] = await run.says(listening);
  match(
    run.output(),
    /^\d{4}-\d\d-\d\dT[\d:.]+Z INFO    listening on http:\/\/127\.0\.0\.1:\d+ policy=rollout workers=1$/m,
  );
  await send(t, url!, request('GET', '/v1/models/none', '', ['x-turnout-timeout: abc']));
  await run.says(
    /WARNING request refused requestId=\S+ method=GET path=\/v1\/models\/none worker=null code=bad_request/,
  );
});

const script = '/usr/bin/script';
const hasScript = existsSync(script);

test(
  'without --log-format: text on a terminal, json in files',
  { skip: !hasScript && 'needs script(1)' },
  async (t) => {
    const folder = temporaryFolder(t);
    const command = [process.execPath, program, 'serve', ...ports, '--log-dir', folder].join(' ');
    const child = spawn(script, ['-qefc', command, '/dev/null'], { stdio: ['pipe', 'pipe', 'inherit'] });
    t.after(() => child.kill('SIGTERM'));
    let text = '';
    child.stdout.on('data', (part: Buffer) => (text += part.toString()));
    await until('it listens', () => text.includes('listening on'));
    match(text, /Z INFO    listening on/);
    await until('the file is written', () => readFileSync(join(folder, 'turnout.log'), 'utf8').includes('listening'));
    equal(linesOf(readFileSync(join(folder, 'turnout.log'), 'utf8'))[0]!.level, 'info');
  },
);

const hasFullDevice = process.platform === 'linux';

test('a full disk costs lines, which are counted, and nothing else', { skip: !hasFullDevice }, async (t) => {
  const [engine] = await startEngines(t, 1);
  const folder = temporaryFolder(t);
  symlinkSync('/dev/full', join(folder, 'turnout.log'));
  const run = turnout(t, ['serve', ...ports, '--log-dir', folder, '--access-log', '--worker-urls', engine!.url]);
  const [, url] = await run.says(listening);
  const client = await connectClient(t, url!);
  for (let i = 0; i < 200; i++) {
    client.write(request('GET', '/hello'));
    equal((await client.answer()).status, 200);
  }
  await run.says(/"error":"ENOSPC[^"]*","msg":"--log-dir: log file not written"/);
  const dropped = async () =>
    Number(/turnout_log_dropped_lines_total (\d+)/.exec((await send(t, url!, request('GET', '/metrics'))).text)![1]);
  await until('all lines are counted', async () => (await dropped()) >= 200);
  equal(run.output().split('not written').length, 2, 'it is said once');
});

test('an output that is full, and one that is not read, stop nothing', { skip: !hasFullDevice }, async (t) => {
  const [engine] = await startEngines(t, 1);
  for (const output of [openSync('/dev/full', 'w'), 'pipe' as const]) {
    const port = await freePort();
    const args = ['serve', ...ports, '--port', String(port), '--access-log', '--worker-urls', engine!.url];
    const child = spawn(process.execPath, [program, ...args], { stdio: ['ignore', output, 'inherit'] });
    const ended = once(child, 'exit');
    t.after(() => child.kill('SIGKILL'));
    child.stdout?.pause();
    const url = `http://127.0.0.1:${port}`;
    await until('it listens', () => connectClient(t, url).then(Boolean, () => false));
    const client = await connectClient(t, url);
    // More than a pipe holds and than the router keeps.
    const path = `/${'x'.repeat(8_000)}`;
    for (let i = 0; i < 250; i++) {
      client.write(request('GET', path));
      equal((await client.answer()).status, 200);
    }
    const metrics = (await send(t, url, request('GET', '/metrics'))).text;
    ok(Number(/turnout_log_dropped_lines_total (\d+)/.exec(metrics)![1]) > 0);
    child.kill('SIGTERM');
    deepEqual(await ended, [0, null]);
  }
});
