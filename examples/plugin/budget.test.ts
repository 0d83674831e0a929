import { deepEqual, equal, match } from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { request } from '../../router/test/harness/client.ts';
import { answer } from '../../router/test/harness/engine.ts';
import { chunk } from '../../router/test/harness/message.ts';
import { startScene, untilIdle } from '../../router/test/harness/router.ts';

const plugin = `${join(import.meta.dirname, 'budget.ts')}:{"tokens":100}`;
const ask = (group: string): string => request('POST', '/v1/completions', '{}', [`x-turnout-group: ${group}`]);

test('a group is refused once its answers have come to the budget, others are not', async (t) => {
  const { client, exchange, router } = await startScene(t, { plugin: [plugin] });
  const usage = answer(200, '{"usage":{"prompt_tokens":3,"completion_tokens":60}}');
  for (const group of ['a', 'a', 'b']) equal((await exchange(ask(group), usage)).status, 200);
  client.write(ask('a'));
  const got = await client.answer();
  deepEqual([got.status, got.get('x-turnout-error')], [429, 'plugin_refused']);
  match(got.text, /This group has had its 100 tokens/);
  equal((await exchange(ask('b'), usage)).status, 200);
  deepEqual(await (await fetch(`${router.url}/budget`)).json(), {
    a: { tokens: 120, refused: 1 },
    b: { tokens: 120, refused: 0 },
  });
});

test('usage is found in a stream too, also where it comes in two pieces', async (t) => {
  const { ask: askEngine, client, router } = await startScene(t, { plugin: [plugin] });
  const asked = await askEngine(ask('a'));
  asked.beginStream();
  for (const part of ['data: {"usage":{"completion_to', 'kens": 4', '2}}\n\n']) {
    asked.connection.write(chunk(part));
    await client.read(chunk(part));
  }
  asked.connection.write('0\r\n\r\n');
  await client.read('0\r\n\r\n');
  await untilIdle(router);
  deepEqual(await (await fetch(`${router.url}/budget`)).json(), { a: { tokens: 42, refused: 0 } });
});

test('a stream without usage costs a token for each event', async (t) => {
  const { ask: askEngine, client, router } = await startScene(t, { plugin: [plugin] });
  const asked = await askEngine(ask('a'));
  asked.beginStream();
  for (const part of ['data: {"choices":[]}\n', '\ndata: {"choices":[]}\n\ndata: [DONE]\n\n']) {
    asked.connection.write(chunk(part));
    await client.read(chunk(part));
  }
  asked.connection.write('0\r\n\r\n');
  await client.read('0\r\n\r\n');
  await untilIdle(router);
  deepEqual(await (await fetch(`${router.url}/budget`)).json(), { a: { tokens: 3, refused: 0 } });
});

test('usage that comes with every event counts once', async (t) => {
  const { ask: askEngine, client, router } = await startScene(t, { plugin: [plugin] });
  const asked = await askEngine(ask('a'));
  asked.beginStream();
  for (const tokens of [1, 2]) {
    const part = chunk(`data: {"usage":{"completion_tokens":${tokens}}}\n\n`);
    asked.connection.write(part);
    await client.read(part);
  }
  asked.connection.write('0\r\n\r\n');
  await client.read('0\r\n\r\n');
  await untilIdle(router);
  deepEqual(await (await fetch(`${router.url}/budget`)).json(), { a: { tokens: 2, refused: 0 } });
});

test('the example runs, and its numbers are right', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [join(import.meta.dirname, 'run.ts')], {
    timeout: 60_000,
  });
  equal(/group-9 {2}11 wanted, 6 answered, 96 tokens/.test(stdout), true, stdout);
});
