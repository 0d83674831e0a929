import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { request, send } from '../harness/client.ts';
import { answer } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, startScene, untilIdle } from '../harness/router.ts';
import { startPairs } from '../pairs/scene.ts';
import type { Plugin } from '../../src/plugin.ts';

/** Notes what it gets of each exchange, and its end. */
function listener(name = 'listener') {
  const observed: { status: number; type: string | undefined; text: string; outcome: string | null }[] = [];
  const open = new Map<unknown, (typeof observed)[number]>();
  const plugin: Plugin = {
    name,
    observeResponse(x, head) {
      const note = { status: head.status, type: head.get('content-type'), text: '', outcome: null };
      open.set(x, note);
      observed.push(note);
      return { observe: (bytes, start, end) => void (note.text += bytes.toString('latin1', start, end)) };
    },
    finished(x) {
      const note = open.get(x);
      if (note !== undefined) note.outcome = x.outcome;
      open.delete(x);
    },
  };
  return { plugin, observed };
}

const CHUNKED = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n';

test('observers get the payload, the client gets every byte with the engine’s own chunk lines', async (t) => {
  const [a, b] = [listener('a'), listener('b')];
  const { exchange, router } = await startScene(t, {}, { plugins: [a.plugin, b.plugin] });
  const body = `0A\r\ndata: 1\n\nd\r\n${chunk('ata: 2\n')}${chunk('\n')}0\r\n\r\n`;
  const stream = await exchange(HELLO, `${CHUNKED}${body}`);
  equal(stream.raw.toString(), body);
  const plain = await exchange(HELLO, answer(418, 'short', ['x-a: b']));
  equal(plain.text, 'short');
  equal((await exchange(request('HEAD', '/'), 'HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n')).status, 200);
  await untilIdle(router);
  const expected = [
    { status: 200, type: 'text/event-stream', text: 'data: 1\n\ndata: 2\n\n', outcome: 'complete' },
    { status: 418, type: undefined, text: 'short', outcome: 'complete' },
    { status: 200, type: undefined, text: '', outcome: 'complete' },
  ];
  deepEqual(a.observed, expected);
  deepEqual(b.observed, expected);
});

test('an event is observed and on its way before the next one comes, and a cut is reported', async (t) => {
  const { plugin, observed } = listener();
  const { ask, client, router } = await startScene(t, {}, { plugins: [plugin] });
  const asked = await ask(HELLO);
  asked.beginStream();
  for (const event of ['data: 1\n\n', 'data: 2\n\n']) {
    asked.connection.write(chunk(event));
    ok((await client.read(chunk(event))).endsWith(chunk(event)));
    ok(observed[0]!.text.endsWith(event));
  }
  asked.connection.reset();
  await client.untilEnded();
  await untilIdle(router);
  deepEqual([observed[0]!.text, observed[0]!.outcome], ['data: 1\n\ndata: 2\n\n', 'cut']);
});

test('observers get what the engine sent, not what another plugin makes of it', async (t) => {
  const { plugin, observed } = listener();
  const changing: Plugin = {
    name: 'changing',
    responseEvent: (_x, event) => Buffer.from(event.toString().replace('1', 'one')),
    responseBody: (_x, body) => Buffer.from(body.toString().replace('1', 'one')),
  };
  const { exchange } = await startScene(t, {}, { plugins: [changing, plugin] });
  equal((await exchange(HELLO, `${CHUNKED}${chunk('data: 1\n\n')}0\r\n\r\n`)).text, 'data: one\n\n');
  equal((await exchange(HELLO, answer(200, '"1"'))).text, '"one"');
  deepEqual(
    observed.map(({ text }) => text),
    ['data: 1\n\n', '"1"'],
  );
});

test('a retry is observed once: the answer that the client gets', async (t) => {
  const { plugin, observed } = listener();
  const { client, engine } = await startScene(
    t,
    { retryMaxRetries: 2, retryInitialBackoffMs: 1 },
    { plugins: [plugin] },
  );
  engine.onRequest = ({ connection }) => connection.write(answer(engine.requests.length < 2 ? 503 : 200, '"ok"'));
  client.write(request('POST', '/generate', '{}'));
  equal((await client.answer()).text, '"ok"');
  deepEqual(
    observed.map(({ status, text }) => [status, text]),
    [[200, '"ok"']],
  );
});

test('of a pair the decode engine is observed, whose answer the client gets', async (t) => {
  const { plugin, observed } = listener();
  const asked: string[][] = [];
  const choosing: Plugin = {
    name: 'choosing',
    choose(_x, workers) {
      asked.push(workers.map(({ role }) => role));
      return workers.filter(({ role, url }) => role === 'prefill' || url === last);
    },
  };
  const { world, router } = await startPairs(t, [1, 2], {}, { plugins: [plugin, choosing] });
  const last = world.decode[1]!.engine.url;
  for (let i = 0; i < 3; i++) {
    const got = await send(t, router.url, request('POST', '/generate', '{"text":"a"}'));
    equal((JSON.parse(got.text) as { text: string }).text, 'decode1');
  }
  await untilIdle(router);
  deepEqual(asked[0], ['prefill', 'decode', 'decode']);
  deepEqual(
    observed.map(({ text, outcome }) => [(JSON.parse(text) as { text: string }).text, outcome]),
    Array.from({ length: 3 }, () => ['decode1', 'complete']),
  );
});

test('an observer that throws is dropped, the others go on, and the client notices nothing', async (t) => {
  const { plugin, observed } = listener();
  let calls = 0;
  const clumsy: Plugin = {
    name: 'clumsy',
    observeResponse: ({ path }) => {
      if (path === '/head') throw new Error('on purpose');
      return {
        observe() {
          calls++;
          throw new Error('on purpose');
        },
      };
    },
  };
  const { exchange, router } = await startScene(t, {}, { plugins: [clumsy, plugin] });
  const body = `${chunk('data: 1\n\n')}${chunk('data: 2\n\n')}0\r\n\r\n`;
  equal((await exchange(HELLO, `${CHUNKED}${body}`)).raw.toString(), body);
  equal((await exchange(request('GET', '/head'), answer(200, 'x'))).text, 'x');
  equal(calls, 1);
  deepEqual(
    observed.map(({ text }) => text),
    ['data: 1\n\ndata: 2\n\n', 'x'],
  );
  const metrics = await (await fetch(`${router.url}/metrics`)).text();
  ok(metrics.includes('turnout_plugin_failures_total{plugin="clumsy",phase="observe_response"} 2'), metrics);
});
