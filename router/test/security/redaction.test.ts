import assert, { equal, match } from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import { loadConfig } from '../../src/config/load.ts';
import { policyNames } from '../../src/config/options/policy-names.ts';
import { turnout } from '../cli/turnout.ts';
import { request, send } from '../harness/client.ts';
import { answer, deadUrl, startEngine } from '../harness/engine.ts';
import { startTestRouter } from '../harness/router.ts';

/** Every word that must not be shown begins so. */
const SECRET = /s3cret/;

const CREDENTIALS = [
  'authorization: Bearer s3cret-data',
  'cookie: session=s3cret-cookie',
  'proxy-authorization: s3cret-proxy',
];

for (const policy of policyNames.filter((name) => name !== 'kv_aware')) {
  test(`at debug no key, cookie, query or body is in logs, metrics, errors or GET /workers (${policy})`, async (t) => {
    const lines: string[] = [];
    const log = pino({ level: 'debug' }, { write: (line: string) => void lines.push(line) });
    const engine = await startEngine(t, { onRequest: (asked) => asked.answer('{"text":"s3cret-answer"}') });
    const broken = await startEngine(t, { onRequest: (asked) => asked.connection.write('not HTTP s3cret\r\n\r\n') });
    const router = await startTestRouter(
      t,
      {
        workerUrls: [engine.url, await deadUrl()],
        policy,
        apiKey: ['s3cret-data'],
        adminApiKey: ['s3cret-admin'],
        workerApiKey: 's3cret-worker',
        corsAllowedOrigins: ['*'],
      },
      { log },
    );
    const admin = ['authorization: Bearer s3cret-admin'];
    const shown: string[] = [];
    const ask = async (method: string, target: string, body: string, fields: readonly string[]) => {
      const got = await send(t, router.url, request(method, target, body, fields));
      if (got.get('x-turnout-error') !== undefined || target.startsWith('/workers'))
        shown.push(got.headText + got.text);
      return got.status;
    };
    const prompt = JSON.stringify({ model: 'm', messages: [{ role: 'user', content: 's3cret-prompt' }] });
    for (let i = 0; i < 6; i++) await ask('POST', '/v1/chat/completions?token=s3cret-query', prompt, CREDENTIALS);
    equal(await ask('POST', '/workers', JSON.stringify({ url: broken.url, api_key: 's3cret-own' }), admin), 202);
    for (let i = 0; i < 6; i++) await ask('POST', '/generate?key=s3cret-query', '{"text":"s3cret"}', CREDENTIALS);
    equal(await ask('POST', '/generate', '{}', ['authorization: Bearer s3cret-wrong']), 401);
    equal(await ask('POST', '/pause', '{}', CREDENTIALS), 403);
    equal(await ask('POST', '/workers', '{"url":"http://u:s3cret@h"}', admin), 400);
    equal(await ask('POST', '/workers', '{"url":"h:1","api_key":"s3cret key"}', admin), 400);
    equal(await ask('GET', '/workers', '', admin), 200);
    equal(await ask('PUT', '/policies', '{"policy":"./s3c', admin), 400);
    shown.push((await send(t, router.url, request('GET', '/metrics', '', admin))).text);
    shown.push((await send(t, router.url, request('GET', '/policies', '', admin))).text);
    await router.close();
    assert.ok(lines.length > 12, 'the log has its lines');
    for (const text of [...lines, ...shown]) assert.doesNotMatch(text, SECRET);
  });
}

test('what is wrong with the configuration is said without its keys', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-redaction-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'turnout.yaml');
  const errorOf = (load: () => unknown): string => {
    try {
      load();
    } catch (error) {
      return (error as Error).message;
    }
    return assert.fail('no error');
  };
  for (const text of ['api-key: [s3cret\n', 'api-key: [s3cret key]', 'worker-api-key: [s3cret]']) {
    writeFileSync(file, text);
    assert.doesNotMatch(
      errorOf(() => loadConfig({}, {}, file)),
      SECRET,
      text,
    );
  }
  for (const env of [{ TURNOUT_WORKER_API_KEY: 's3cret key' }, { TURNOUT_ADMIN_API_KEY: 's3cret\u00e9' }])
    assert.doesNotMatch(
      errorOf(() => loadConfig({}, env, undefined)),
      SECRET,
    );
  const run = turnout(t, ['serve', '--api-keys=s3cret']);
  equal(await run.ended, 2);
  match(run.output(), /unknown option '--api-keys'/);
  assert.doesNotMatch(run.output(), SECRET);
});

test('a key that is there but empty does not open the door', () => {
  for (const env of [{ TURNOUT_API_KEY: '' }, { TURNOUT_ADMIN_API_KEY: ' , ' }])
    assert.throws(() => loadConfig({}, env, undefined), /API_KEY: no key is in it/);
});

test('SIGHUP reads key files again, without a key in the log', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-redaction-'));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'keys');
  writeFileSync(file, 's3cret-one\n');
  const engine = await startEngine(t, { onRequest: (asked) => asked.connection.write(answer(200, '{}')) });
  const ports = ['--port', '0', '--prometheus-port', '0'];
  const more = ['--worker-urls', engine.url, '--api-key-file', file, '--log-level', 'debug', '--disable-health-check'];
  const run = turnout(t, ['serve', ...ports, ...more]);
  const url = (await run.says(/listening on (http:\/\/[\d.:]+)/))[1]!;
  const status = async (key: string) =>
    (await send(t, url, request('GET', '/v1/models', '', [`authorization: Bearer ${key}`]))).status;
  equal(await status('s3cret-one'), 200);
  equal(await status('s3cret-two'), 401);
  writeFileSync(file, '\n');
  run.child.kill('SIGHUP');
  await run.says(/configuration not reloaded: the old one stays in force/);
  equal(await status('s3cret-one'), 200);
  writeFileSync(file, 's3cret-two\n');
  run.child.kill('SIGHUP');
  await run.says(/configuration reloaded/);
  equal(await status('s3cret-two'), 200);
  equal(await status('s3cret-one'), 401);
  assert.doesNotMatch(run.output(), SECRET);
});
