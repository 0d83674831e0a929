import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { makeCertificate } from '../harness/certificate.ts';
import { startTestRouter } from '../harness/router.ts';
import { turnout } from './turnout.ts';

const anyPorts = ['--port', '0', '--prometheus-port', '0'];

async function doctor(t: TestContext, ...args: string[]) {
  const run = turnout(t, ['doctor', ...anyPorts, ...args]);
  const code = await run.ended;
  return { code, output: run.output() };
}

const portOf = (url: string | null): string => new URL(url!).port;

async function simEngine(t: TestContext, options: Parameters<typeof startSimEngine>[0] = {}) {
  const engine = await startSimEngine({ timeScale: 0, ...options });
  t.after(() => engine.close());
  return engine;
}

function folderOf(t: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-doctor-'));
  t.after(() => rmSync(folder, { recursive: true }));
  return folder;
}

test('doctor runs the checks of the start', async (t) => {
  const { code, output } = await doctor(t, '--tokenizer-path', '/nope', '--plugin', 'radix-tree');
  assert.match(output, /PROBLEM .*--tokenizer-path \/nope: there is no such file/);
  const alone = await doctor(t, '--tokenizer-path', '/nope');
  assert.match(alone.output, /PROBLEM .*--tokenizer-path \/nope: there is no such file/);
  assert.equal(code, 1);
});

test('doctor reports a certificate or key file that cannot be read, and checks no worker without it', async (t) => {
  const engine = await simEngine(t);
  for (const flag of ['--ca-cert-path', '--api-key-file', '--admin-api-key-file']) {
    const { code, output } = await doctor(t, flag, '/nope', '--worker-urls', engine.url);
    assert.match(output, /PROBLEM .*\/nope/, flag);
    assert.match(output, /note {5}not checked, because .* cannot be read \(see above\)\n1 problem found\.\n$/, flag);
    assert.equal(code, 1, output);
  }
});

for (const kind of ['sglang', 'vllm'] as const) {
  test(`doctor generates at ${kind} and compares the tokenizer`, async (t) => {
    const tokenizer = folderOf(t);
    writeTokenizer(tokenizer);
    const engine = await simEngine(t, { kind });
    const { code, output } = await doctor(t, '--worker-urls', engine.url, '--tokenizer-path', tokenizer);
    assert.match(output, /ok {7}generates: .* answers with ids and logprobs/);
    assert.match(output, /ok {7}its tokenizer gives the same ids/);
    assert.equal(code, 0, output);
  });
}

for (const [kind, flag] of [
  ['sglang', '--enable-cache-report'],
  ['vllm', '--enable-prompt-tokens-details'],
] as const) {
  test(`doctor says what ${kind} needs to report cached tokens`, async (t) => {
    const engine = await simEngine(t, { kind });
    const silent = createHttpServer(async (request, response) => {
      const { method = '', url = '' } = request;
      const body = method === 'POST' ? await buffer(request) : null;
      const answer = await fetch(engine.url + url, { method, body });
      const text = (await answer.text()).replace(/"prompt_tokens_details":\{[^}]*\}/, '"prompt_tokens_details":null');
      response.writeHead(answer.status).end(text);
    }).listen(0, '127.0.0.1');
    await once(silent, 'listening');
    t.after(() => silent.close());
    const url = `http://127.0.0.1:${(silent.address() as { port: number }).port}`;
    const { code, output } = await doctor(t, '--worker-urls', engine.url, url);
    assert.match(output, /ok {7}reports cached tokens in usage/);
    assert.match(output, new RegExp(`note {5}reports no cached tokens in usage.*start it with ${flag} `));
    assert.equal(code, 0, output);
  });
}

test('doctor finds an engine that is healthy and generates nothing', async (t) => {
  const engine = createHttpServer((request, response) => {
    response.statusCode = request.method === 'GET' ? 200 : 500;
    response.end('scheduler died');
  }).listen(0, '127.0.0.1');
  await once(engine, 'listening');
  t.after(() => engine.close());
  const { code, output } = await doctor(
    t,
    '--worker-urls',
    `http://127.0.0.1:${(engine.address() as { port: number }).port}`,
  );
  assert.match(output, /PROBLEM {2}generates nothing: \/v1\/completions answers 500 scheduler died/);
  assert.equal(code, 1);
});

test('doctor finds a router that is to be its own worker', async (t) => {
  const router = await startTestRouter(t, {});
  const { code, output } = await doctor(t, '--worker-urls', router.url);
  assert.match(output, /PROBLEM {2}this is a turnout router, not an engine/);
  assert.equal(code, 1);
});

test('doctor notes the ports of a router that runs, and finds those of another program', async (t) => {
  const engine = await simEngine(t);
  const certificate = makeCertificate(t, 'elsewhere');
  if (certificate === null) return;
  const { certPath: tlsCertPath, keyPath: tlsKeyPath } = certificate;
  const open = await startTestRouter(t, { adminPort: 0 });
  const guarded = await startTestRouter(t, { apiKey: ['key'], tlsCertPath, tlsKeyPath });
  for (const [router, admin] of [
    [open, ['--admin-port', portOf(open.adminUrl)]],
    [guarded, []],
  ] as const) {
    const ports = ['--port', portOf(router.url), '--prometheus-port', portOf(router.metricsUrl), ...admin];
    const { code, output } = await doctor(t, ...ports, '--worker-urls', engine.url);
    const notes = [
      ...output.matchAll(/note {5}(--[a-z-]+) \d+ on 127\.0\.0\.1 is in use: a turnout router runs there/g),
    ];
    assert.equal(notes.length, ports.length / 2, output);
    assert.equal(code, 0, output);
  }
  const { code, output } = await doctor(t, '--port', portOf(engine.url));
  assert.match(output, /PROBLEM {2}--port \d+ on 127\.0\.0\.1 can't be listened on \(EADDRINUSE\)/);
  assert.equal(code, 1);
});

test('doctor checks the ports of the endpoint picker, and knows those of one that runs', async (t) => {
  const router = await startTestRouter(t, { pickerPort: 0, pickerHealthPort: 0, pickerTls: 'off' });
  const { address, healthAddress } = router.picker!;
  const [port, healthPort] = [portOf(`http://${address}`), portOf(`http://${healthAddress}`)];
  const ports = ['--picker-port', port, '--picker-health-port', healthPort, '--picker-tls', 'off'];
  const running = await doctor(t, ...ports, '--prometheus-port', portOf(router.metricsUrl));
  for (const flag of ['--picker-port', '--picker-health-port'])
    assert.match(running.output, new RegExp(`note {5}${flag} \\d+ on \\S+ is in use: a turnout router runs there`));
  const other = await doctor(t, ...ports);
  assert.match(other.output, /PROBLEM {2}--picker-port \d+ on \S+ can't be listened on \(EADDRINUSE\): choose another/);
  assert.equal(other.code, 1);
});

test('doctor finds http engines behind https addresses', async (t) => {
  const engine = await simEngine(t);
  const { code, output } = await doctor(t, '--worker-urls', engine.url.replace('http:', 'https:'));
  assert.match(output, new RegExp(`PROBLEM .*it answers without TLS\\. Use ${engine.url}`));
  assert.equal(code, 1);
});

test('doctor finds an engine that publishes no KV cache events', async (t) => {
  const engine = await simEngine(t);
  const args = ['--policy', 'kv_aware', '--worker-urls', engine.url];
  const missing = await doctor(t, ...args, '--kv-event-port', '1');
  assert.match(missing.output, /PROBLEM {2}publishes no KV cache events on tcp:\/\/127\.0\.0\.1:1/);
  assert.equal(missing.code, 1);
  const publisher = createServer().listen(0, '127.0.0.1');
  await once(publisher, 'listening');
  t.after(() => publisher.close());
  const { port } = publisher.address() as { port: number };
  const there = await doctor(t, ...args, '--kv-event-port', String(port));
  assert.match(there.output, /ok {7}publishes KV cache events/);
});
