import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { turnout } from '../cli/turnout.ts';
import { connectClient, request } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, startScene } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const READY = request('GET', '/readiness');

test('during the drain, open connections get not ready and connection: close', async (t) => {
  const { router, ask, client } = await startScene(t);
  const other = await connectClient(t, router.url);
  const asked = await ask(HELLO);
  asked.beginStream();
  await client.read('\r\n\r\n');
  const closed = router.close(10_000);
  other.write(READY);
  const answer = await other.answer();
  equal(answer.status, 503);
  match(answer.text, /"reason":"shutting down"/);
  equal(answer.get('connection'), 'close');
  await other.untilEnded();
  asked.connection.write('0\r\n\r\n');
  await client.read('0\r\n\r\n');
  await closed;
});

test('a request that was on its way is served on a connection that was idle', async (t) => {
  const { router, engine, ask, client } = await startScene(t);
  const idle = await connectClient(t, router.url);
  const asked = await ask(HELLO);
  const closed = router.close(10_000);
  // Its first half came before, its second one comes after.
  idle.write(HELLO);
  (await engine.next()).answer('"served"');
  const answer = await idle.answer();
  deepEqual([answer.text, answer.get('connection')], ['"served"', 'close']);
  asked.answer('{}');
  await client.answer();
  await closed;
});

test('at the end of its grace a stream gets an error event between two events, and no clean end', async (t) => {
  const { router, ask, client } = await startScene(t);
  const asked = await ask(request('POST', '/v1/completions', '{}'));
  asked.beginStream();
  asked.connection.write(chunk('data: 1\n\n'));
  await client.read('data: 1\n\n\r\n');
  await router.close(100);
  await client.untilEnded();
  match(client.unread, /^[\da-f]+\r\ndata: \{"error":\{.*"code":"shutting_down"\}\}\n\n\r\n$/);
});

test('within an event nothing is put in', async (t) => {
  const { router, ask, client } = await startScene(t);
  const asked = await ask(request('POST', '/v1/completions', '{}'));
  asked.beginStream();
  asked.connection.write(chunk('data: 1\n\ndata: hal'));
  await client.read('hal\r\n');
  await router.close(100);
  await client.untilEnded();
  equal(client.unread, '');
});

test('what no worker has answered is refused, with the reason', async (t) => {
  const { router, ask, client } = await startScene(t);
  const asked = await ask(HELLO);
  await router.close(100);
  const answer = await client.answer();
  deepEqual([answer.status, answer.get('x-turnout-error')], [503, 'shutting_down']);
  await asked.connection.untilEnded();
});

test('an answer that its client reads slowly goes out whole', async (t) => {
  const { router, ask, client } = await startScene(t);
  client.stall();
  const asked = await ask(HELLO);
  const body = 'x'.repeat(8_000_000);
  asked.answer(body);
  await until('some of it is on its way', () => router.pipeline.inFlight.size === 1);
  const closed = router.close(20_000);
  client.goOn();
  equal((await client.answer()).text.length, body.length);
  await closed;
});

test('a scraper that never sends and one that never reads do not keep it from closing', async (t) => {
  const { router } = await startScene(t);
  const url = router.metricsUrl.replace('/metrics', '');
  const silent = await connectClient(t, url);
  const deaf = await connectClient(t, url);
  deaf.stall();
  for (let i = 0; i < 100; i++) deaf.write(request('GET', '/metrics'));
  const fine = await connectClient(t, url);
  fine.write(request('GET', '/metrics'));
  ok((await fine.answer()).text.includes('turnout_event_loop_lag_seconds_bucket'));
  await router.close(100);
  await silent.untilEnded();
});

test('SIGTERM with 200 streams: those that end in time end well, the others incomplete; the exit code is 0', async (t) => {
  const engine = await startEngine(t);
  const ports = ['--port', '0', '--prometheus-port', '0', '--disable-health-check', '--policy', 'least_inflight'];
  const run = turnout(t, ['serve', ...ports, '--shutdown-grace-period-secs', '3', '--worker-urls', engine.url]);
  const [, url] = await run.says(/listening on (http:\/\/127\.0\.0\.1:\d+)/);
  const streams = await Promise.all(
    Array.from({ length: 200 }, async () => {
      const client = await connectClient(t, url!);
      client.write(request('POST', '/v1/completions', '{}'));
      const asked = await engine.next();
      asked.beginStream();
      asked.connection.write(chunk('data: 1\n\n'));
      await client.read('\r\n\r\n');
      await client.read('data: 1\n\n\r\n');
      return { client, asked };
    }),
  );
  run.child.kill('SIGTERM');
  await run.says(/"inFlight":200,.*"msg":"draining"/);
  await until('it listens no more', () =>
    connectClient(t, url!).then(
      (client) => {
        client.reset();
        return false;
      },
      () => true,
    ),
  );
  // Who asks and who answers may have been paired in another order.
  for (const { asked } of streams.slice(0, 100)) asked.connection.write('0\r\n\r\n');
  const ends = await Promise.all(
    streams.map(async ({ client }) => {
      await client.untilEnded();
      return client.unread;
    }),
  );
  equal(ends.filter((end) => end === '0\r\n\r\n').length, 100);
  const isLastWord = (end: string) => /^[\da-f]+\r\ndata: \{"error":.*shutting_down.*\n\n\r\n$/.test(end);
  equal(ends.filter(isLastWord).length, 100);
  equal(await run.ended, 0);
  match(run.output(), /"level":"warning",.*"cut":100,"msg":"drained"/);
});

test('a second signal cuts what is in flight: with an error event in streams, counted in the log, exit code 1', async (t) => {
  const engine = await startEngine(t);
  const ports = ['--port', '0', '--prometheus-port', '0', '--disable-health-check', '--policy', 'least_inflight'];
  const run = turnout(t, ['serve', ...ports, '--worker-urls', engine.url]);
  const [, url] = await run.says(/listening on (http:\/\/127\.0\.0\.1:\d+)/);
  const waiting = await connectClient(t, url!);
  waiting.write(HELLO);
  await engine.next();
  const stream = await connectClient(t, url!);
  stream.write(request('POST', '/v1/completions', '{}'));
  const asked = await engine.next();
  asked.beginStream();
  asked.connection.write(chunk('data: 1\n\n'));
  await stream.read('data: 1\n\n\r\n');
  run.child.kill('SIGINT');
  await run.says(/a second signal \(Ctrl-C again\) cuts the 2 requests in flight/);
  run.child.kill('SIGINT');
  match(await stream.read('\n\n\r\n'), /^[\da-f]+\r\ndata: \{"error":.*shutting_down/);
  equal((await waiting.answer()).status, 503);
  equal(await run.ended, 1);
  match(run.output(), /"level":"warning",.*"cut":2,"msg":"drained"/);
});
