import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import { turnout } from './turnout.ts';

const anyPorts = ['--port', '0', '--prometheus-port', '0'];
const listening = /listening on (http:\/\/127\.0\.0\.1:\d+)/;

async function simEngine(t: TestContext, options: Parameters<typeof startSimEngine>[0] = {}) {
  const engine = await startSimEngine({ timeScale: 0, ...options });
  t.after(() => engine.close());
  return engine;
}

test('an unknown flag names the nearest one', async (t) => {
  const run = turnout(t, ['serve', '--wroker-urls', 'http://127.0.0.1:1']);
  assert.notEqual(await run.ended, 0);
  assert.match(run.output(), /unknown option '--wroker-urls'[\s\S]*--worker-urls/);
});

test('a wrong value names its option and what it takes', async (t) => {
  const run = turnout(t, ['serve', '--policy', 'best', '--port', 'many']);
  assert.equal(await run.ended, 2);
  assert.match(run.output(), /--policy: .*round_robin/);
  assert.match(run.output(), /--port: /);
});

test('a port that is taken is said in words', async (t) => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const { port } = server.address() as { port: number };
  const run = turnout(t, ['serve', '--port', String(port), '--prometheus-port', '0']);
  assert.equal(await run.ended, 2);
  assert.match(run.output(), new RegExp(`--port ${port}: another process listens there`));
});

test('a host that does not exist is named, and not the port', async (t) => {
  for (const [flag, ...others] of [['--host'], ['--prometheus-host'], ['--admin-host', '--admin-port', '0']]) {
    const run = turnout(t, ['--port', '0', '--prometheus-port', '0', `${flag}=nohost.invalid`, ...others]);
    assert.equal(await run.ended, 2);
    assert.match(
      run.output(),
      new RegExp(`^turnout: ${flag} nohost\\.invalid: (no such host|the name could not be)`, 'm'),
    );
  }
});

test('addresses of IPv6 may have the brackets of a URL', async (t) => {
  const hosts = ['--host', '[::1]', '--admin-host', '[::1]', '--prometheus-host', '[::1]'];
  const run = turnout(t, [...hosts, '--port', '0', '--admin-port', '0', '--prometheus-port', '0']);
  const [, metrics] = await run.says(/metrics on (http:\/\/\[::1\]:\d+\/metrics)/);
  const [, url] = await run.says(/listening on (http:\/\/\[::1\]:\d+)/);
  for (const each of [`${url}/liveness`, String(metrics)]) assert.equal((await fetch(each)).status, 200);
});

test('a start without workers says how to add them, and one without keys on all addresses that it is open', async (t) => {
  const ports = ['--port', '0', '--prometheus-port', '0'];
  const bare = turnout(t, ports);
  await bare.says(/no workers yet: give --worker-urls, or POST \/add_worker/);
  assert.doesNotMatch(bare.output(), /without keys/);
  const engine = await simEngine(t);
  const open = turnout(t, [...ports, '--host', '0.0.0.0', '--worker-urls', engine.url]);
  await open.says(/--host 0\.0\.0\.0 without keys: everyone who can reach it may send requests, add workers/);
  assert.doesNotMatch(open.output(), /no workers yet/);
  const guarded = turnout(t, [...ports, '--host', '0.0.0.0', '--api-key', 'k']);
  await guarded.says(/no workers yet/);
  assert.doesNotMatch(guarded.output(), /without keys/);
});

test('a worker that is not a URL stops the start', async (t) => {
  const run = turnout(t, ['serve', ...anyPorts, '--worker-urls', 'ftp://x']);
  assert.equal(await run.ended, 2);
  assert.match(run.output(), /--worker-urls: "ftp:\/\/x" is neither http nor https/);
});

test('options come from flags, environment and file, in this order', async (t) => {
  const engine = await simEngine(t);
  const folder = mkdtempSync(join(tmpdir(), 'turnout-cli-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'turnout.yaml');
  writeFileSync(file, `policy: random\nprometheus-port: 0\nworker_urls:\n  - ${engine.url}\n`);
  const run = turnout(t, ['--config', file, '--port', '0'], { TURNOUT_POLICY: 'power-of-two', TURNOUT_PORT: '1' });
  const url = (await run.says(listening))[1]!;
  assert.match(run.output(), /"policy":"power_of_two"/);
  const answer = await fetch(`${url}/v1/models`);
  assert.equal(answer.status, 200);
});

test('SIGTERM lets a running stream finish and ends with 0', async (t) => {
  const engine = await simEngine(t, { kind: 'vllm', timeScale: 0.5 });
  const run = turnout(t, ['serve', ...anyPorts, '--worker-urls', engine.url]);
  const url = (await run.says(listening))[1]!;
  const body = JSON.stringify({ model: 'sim', prompt: 'Hello', max_tokens: 40, ignore_eos: true, stream: true });
  const answer = await fetch(`${url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body,
  });
  run.child.kill('SIGTERM');
  const text = await answer.text();
  assert.match(text, /data: \[DONE\]\s*$/);
  assert.equal(await run.ended, 0);
});

test('sim starts engines that a router can be pointed at', async (t) => {
  const run = turnout(t, ['sim', '--workers', '2', '--set', 'timeScale=0', 'model=tiny']);
  const [, first, second] = await run.says(/serve --worker-urls (\S+) (\S+)/);
  for (const url of [first!, second!]) {
    const models = (await (await fetch(`${url}/v1/models`)).json()) as { data: { id: string }[] };
    assert.equal(models.data[0]!.id, 'tiny');
  }
  run.child.kill('SIGINT');
  assert.equal(await run.ended, 0);
});

test('sim refuses a constant that it does not have', async (t) => {
  const run = turnout(t, ['sim', '--set', 'speed=9']);
  assert.equal(await run.ended, 2);
  assert.match(run.output(), /--set speed=9: expected name=value with one of kind, /);
});

test('doctor says what each worker is and lacks, and which weights differ', async (t) => {
  const old = await simEngine(t, { weightVersion: 'step-1' });
  const current = await simEngine(t, { kind: 'vllm', weightVersion: 'step-2' });
  const run = turnout(t, [
    'doctor',
    ...anyPorts,
    '--worker-urls',
    old.url,
    current.url,
    'http://127.0.0.1:1',
    'http://engine.invalid:8000',
  ]);
  assert.equal(await run.ended, 1);
  const output = run.output();
  assert.match(output, /ok {6} SGLang/);
  assert.match(output, /ok {6} vLLM/);
  assert.match(output, /weights "step-1"/);
  assert.match(output, /PROBLEM {2}not reachable \(ECONNREFUSED\)/);
  assert.match(output, /PROBLEM {2}its host name cannot be resolved \(E\w+\): correct the name/);
  assert.match(output, /PROBLEM {2}the engines hold different weights: "step-1" .* and "step-2"/);
});

test('doctor finds nothing wrong with a good fleet', async (t) => {
  const engine = await simEngine(t);
  const run = turnout(t, ['doctor', ...anyPorts, '--worker-urls', engine.url]);
  assert.equal(await run.ended, 0);
  assert.match(run.output(), /No problems found/);
});
