import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { HELLO, startScene, untilIdle } from '../harness/router.ts';
import { STREAM_HEAD, answer } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { moduleOf } from '../harness/plugin-module.ts';
import { until } from '../harness/within.ts';
import type { Plugin } from '../../src/plugin.ts';

/** Holds what it heard `needle` in; `release` lets the first hold go. */
function holder(needle: string) {
  const releases: (() => void)[] = [];
  const outcomes: (string | null)[] = [];
  const wholes: true[] = [];
  const plugin: Plugin = {
    name: 'holder',
    observeResponse() {
      let last = '';
      return {
        observe: (bytes, start, end) => void (last = bytes.toString('latin1', start, end)),
        holds(isWhole, release) {
          if (isWhole) wholes.push(true);
          const isHeld = needle === 'whole' ? isWhole : last.includes(needle);
          last = '';
          if (isHeld) releases.push(release);
          return isHeld;
        },
      };
    },
    finished: (x) => void outcomes.push(x.outcome),
  };
  return { plugin, releases, outcomes, wholes };
}

const NO_LOG = { log: pino({ level: 'silent' }) };

test('an event that is held and what follows it are sent when they are released, byte for byte', async (t) => {
  const { plugin, releases, wholes } = holder('2');
  const { ask, client, router } = await startScene(t, {}, { plugins: [plugin] });
  const asked = await ask(HELLO);
  const body = ['09\r\ndata: 1\n\n\r\n', chunk('data: 2\n\n'), 'd\r\ndata: 3a'];
  asked.connection.write(STREAM_HEAD + body[0]!);
  await client.read(body[0]!);
  asked.connection.write(body[1]!);
  await until('the event is held', () => releases.length === 1);
  asked.connection.write(`${body[2]!}bcd\n\n\r\n0\r\n\r\n`);
  await until('all of the answer was heard', () => wholes.length === 1);
  equal(client.unread, '');
  releases[0]!();
  equal(await client.read('0\r\n\r\n'), `${body[1]!}${body[2]!}bcd\n\n\r\n0\r\n\r\n`);
  await untilIdle(router);
});

test('of a whole answer the last byte is held', async (t) => {
  const { plugin, releases, outcomes } = holder('whole');
  const { ask, client, router } = await startScene(t, {}, { plugins: [plugin] });
  const large = `${'x'.repeat(300_000)}yz`;
  const chunked = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n';
  for (const [i, bytes] of [answer(200, 'short'), answer(200, large), `${chunked}${chunk(large)}0\r\n\r\n`].entries()) {
    const asked = await ask(HELLO);
    asked.connection.write(bytes);
    await until('the answer is held', () => releases.length === i + 1);
    equal(outcomes.length, i);
    ok(!client.unread.endsWith(bytes.slice(-2)), 'the client has its last byte');
    releases[i]!();
    const { payload } = await client.answer();
    equal(payload.toString(), i === 0 ? 'short' : large);
  }
  await untilIdle(router);
  deepEqual(outcomes, ['complete', 'complete', 'complete']);
});

test('a stream that breaks off while an event is held: the client gets the event, then the cut', async (t) => {
  const { plugin, releases, outcomes } = holder('2');
  const { ask, client } = await startScene(t, {}, { plugins: [plugin] });
  const asked = await ask(HELLO);
  asked.connection.write(`${STREAM_HEAD}${chunk('data: 1\n\n')}`);
  await client.read('data: 1\n\n');
  asked.connection.write(chunk('data: 2\n\n'));
  await until('the event is held', () => releases.length === 1);
  asked.connection.reset();
  await asked.connection.closed;
  releases[0]!();
  await client.read('data: 2\n\n');
  await client.untilEnded();
  deepEqual(outcomes, ['cut']);
});

test('a client that leaves while its answer is held: what is released then goes nowhere', async (t) => {
  const { plugin, releases, outcomes } = holder('1');
  const { ask, client, router } = await startScene(t, {}, { plugins: [plugin] });
  const asked = await ask(HELLO);
  asked.connection.write(`${STREAM_HEAD}${chunk('data: 1\n\n')}`);
  await until('the event is held', () => releases.length === 1);
  client.socket.destroy();
  await until('the exchange is over', () => outcomes.length === 1);
  releases[0]!();
  await untilIdle(router);
  deepEqual(outcomes, ['client_left']);
});

test('an engine is read no further while much of its answer is held', async (t) => {
  const { plugin, releases } = holder('first');
  const { ask, client, router } = await startScene(t, {}, { plugins: [plugin] });
  const asked = await ask(HELLO);
  const body = `${chunk('first')}${chunk('x'.repeat(6_000_000))}0\r\n\r\n`;
  asked.connection.write(STREAM_HEAD + chunk('first'));
  await until('it is held', () => releases.length === 1);
  asked.connection.write(body.slice(chunk('first').length));
  // What the router does not read fills the buffers of the system, and then waits in the engine.
  let before = -1;
  await until('the engine can write no more', () => {
    const { writableLength } = asked.connection.socket;
    const isStuck = writableLength === before && writableLength > 0;
    before = writableLength;
    return isStuck;
  });
  releases[0]!();
  equal((await client.answer()).raw.toString(), body);
  await untilIdle(router);
});

test('a listener that never releases what it holds is given up after the plugin timeout', async (t) => {
  const observer = `{ observe() {}, holds: () => true }`;
  const path = moduleOf(t, `{ name: 'clumsy', create: () => ({ observeResponse: () => (${observer}) }) }`);
  const { exchange, router } = await startScene(t, { plugin: [path], pluginTimeoutMs: 50 }, NO_LOG);
  equal((await exchange(HELLO, answer(200, 'ok'))).text, 'ok');
  await untilIdle(router);
  const metrics = await (await fetch(`${router.url}/metrics`)).text();
  match(metrics, /turnout_plugin_failures_total\{plugin="clumsy",phase="observe_response"\} 1\n/);
});
