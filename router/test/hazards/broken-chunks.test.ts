import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { request } from '../harness/client.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, startScene, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { clientAnswer, engineAnswer } from './answer-hazard.ts';

/** Chunks of an engine that are none, and what of them is good as far as it goes: never an end. */
const broken: readonly (readonly [name: string, engineSays: string, good: string])[] = [
  ['0x before the size', '0x5\r\nhello\r\n', '0'],
  ['a plus', '+5\r\nhello\r\n', ''],
  ['a minus', '-5\r\nhello\r\n', ''],
  ['an underscore', '0_5\r\nhello\r\n', '0'],
  ['a size beyond all limits', 'fffffffffffffffff\r\n', 'f'.repeat(12)],
  ['a size of zeros without end', '0'.repeat(50), '0'.repeat(12)],
  ['a space before the size', ' 5\r\nhello\r\n', ''],
  ['a space after the size', '5 \r\nhello\r\n', '5'],
  ['no size', '\r\nhello\r\n', ''],
  ['a size ended by LF', '5\nhello\r\n', '5'],
  ['a size ended by CR', '5\rhello\r\n', '5\r'],
  ['an extension ended by LF', '5;x\nhello\r\n', '5'],
  ['an extension without end', `5;${'x'.repeat(17_000)}`, '5'],
  ['data that is too long', '5\r\nhello!\r\n', '5\r\nhello'],
  ['data ended by LF', '5\r\nhello\n', '5\r\nhello'],
  ['data ended by any two bytes', '5\r\nhelloXX0\r\n\r\n', '5\r\nhello'],
  ['an answer where a size should be', '5\r\nhello\r\nHTTP/1.1 200 OK\r\n\r\n', '5\r\nhello\r\n'],
  ['a trailer without end', `0\r\nx: ${'y'.repeat(17_000)}`, '0\r\n'],
  ['an end that is not CRLF', '0\r\n\rX', '0\r\n\r'],
];

const ENGINE_HEAD = engineAnswer('200 OK', ['transfer-encoding: chunked']);
const CLIENT_HEAD = clientAnswer('200 OK', ['transfer-encoding: chunked']);
const ASKS = request('GET', '/x', '', ['x-request-id: r']);

for (const [name, engineSays, clientGets] of broken) {
  test(`chunk of an answer: ${name} → cut or 502, and never an end (RFC 9112 7.1, 8)`, async (t) => {
    for (const way of ['with the head', 'behind a good chunk', 'at the fault'] as const) {
      // Too much for one read, perhaps.
      if (way === 'with the head' && engineSays.length > 10_000) continue;
      const { client, ask, router } = await startScene(t, { disableRetries: true, workerIdleTimeoutMs: 60_000 });
      const { connection } = await ask(ASKS);
      // What a read brings with the fault in it does not go out; what came before has.
      const gets = way === 'at the fault' ? clientGets : '';
      const good = way === 'with the head' ? '' : chunk('good') + gets;
      if (good !== '') {
        connection.write(ENGINE_HEAD + good);
        await client.read(good);
      }
      connection.write(good === '' ? ENGINE_HEAD + engineSays : engineSays.slice(gets.length));
      if (good === '') {
        const got = await client.answer();
        deepEqual(
          [got.status, got.get('x-turnout-error'), got.get('transfer-encoding')],
          [502, 'upstream_reset', undefined],
        );
        client.end();
      }
      await client.untilEnded();
      if (good !== '') equal(client.received.toString('latin1'), CLIENT_HEAD + good);
      await connection.untilEnded();
      await untilIdle(router);
      await until('the connection is gone', () => router.fleet.workers[0]!.pool.openCount === 0);
    }
  });
}

test('the good chunk alone is passed on', async (t) => {
  const { exchange, client } = await startScene(t);
  equal((await exchange(HELLO, `${ENGINE_HEAD}${chunk('good')}0\r\n\r\n`)).text, 'good');
  equal(client.unread, '');
});
