import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { connect } from 'node:net';
import { type TestContext, test } from 'node:test';
import { Client, connectClient, request, send } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { HELLO, startScene } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { metric } from './metric.ts';
import { program } from '../harness/program.ts';

test('--max-connections: one more is closed as it comes; when one has gone there is room', async (t) => {
  const { client, engine, router } = await startScene(t, { maxConnections: 2 });
  engine.onRequest = (asked) => asked.answer('1');
  const second = await connectClient(t, router.url);
  second.write(HELLO);
  equal((await second.answer()).status, 200);
  const third = await connectClient(t, router.url);
  await third.untilEnded();
  equal(third.bytesReceived, 0);
  equal(await metric(router, 'turnout_refused_connections_total{reason="max_connections"}'), 1);
  client.end();
  await until('it is gone', async () => (await metric(router, 'turnout_client_connections')) === 1);
  equal((await send(t, router.url, HELLO)).status, 200);
});

test('at the limit of connections probes respond on the metrics port', async (t) => {
  const { router } = await startScene(t, { maxConnections: 1 });
  const refused = await connectClient(t, router.url);
  await refused.untilEnded();
  const probe = async (path: string): Promise<[number, string | null, string]> => {
    const response = await fetch(new URL(path, router.metricsUrl));
    return [response.status, response.headers.get('content-type'), await response.text()];
  };
  deepEqual(await probe('/liveness'), [200, 'text/plain;charset=UTF-8', 'OK']);
  const ready = { status: 'ready', healthy_workers: 1, total_workers: 1 };
  deepEqual(await probe('/readiness'), [200, 'application/json', JSON.stringify(ready)]);
  router.fleet.remove(router.fleet.workers[0]!);
  equal((await probe('/readiness'))[0], 503);
});

test('--max-connections-per-client: one more from the same address is closed as it comes', async (t) => {
  const { client, engine, router } = await startScene(t, { maxConnectionsPerClient: 2 });
  engine.onRequest = (asked) => asked.answer('1');
  const second = await connectClient(t, router.url);
  const third = await connectClient(t, router.url);
  await third.untilEnded();
  equal(await metric(router, 'turnout_refused_connections_total{reason="max_connections_per_client"}'), 1);
  const other = connect({ host: '127.0.0.1', port: Number(new URL(router.url).port), localAddress: '127.0.0.2' });
  t.after(() => other.destroy());
  const elsewhere = new Client(other);
  for (const each of [elsewhere, client, second]) {
    each.write(HELLO);
    equal((await each.answer()).status, 200);
  }
  second.end();
  await until('it is gone', async () => (await metric(router, 'turnout_client_connections')) === 2);
  equal((await send(t, router.url, HELLO)).status, 200);
});

/** The command line with at most so many open files. */
async function startWithFiles(t: TestContext, files: number, args: readonly string[]): Promise<string> {
  const ports = ['--port', '0', '--prometheus-port', '0'];
  const child = spawn('sh', [
    '-c',
    `ulimit -n ${files}; exec "$@"`,
    'sh',
    process.execPath,
    program,
    ...ports,
    ...args,
  ]);
  t.after(() => child.kill('SIGKILL'));
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (part: Buffer) => (text += part.toString()));
  const found = (): RegExpExecArray | null => /listening on (http:[^" ]+)/.exec(text);
  await until('it listens', () => {
    ok(child.exitCode === null, text);
    return found() !== null;
  });
  child.on('exit', (code, signal) => signal ?? ok(false, `it ended with ${code}:\n${text}`));
  return found()![1]!;
}

/** So many connections to `url`. @returns how many of them were refused by now, and the call that closes all */
function crowd(url: string, count: number): { refused: () => number; leave: () => void } {
  let refused = 0;
  const sockets = Array.from({ length: count }, () => connect(Number(new URL(url).port), '127.0.0.1'));
  for (const socket of sockets) {
    socket.on('error', () => {});
    socket.on('close', () => refused++);
    socket.resume();
  }
  return {
    refused: () => refused,
    leave: () => {
      for (const socket of sockets) socket.destroy();
    },
  };
}

test('more connections than the file limit allows: further ones are refused, open ones are served', async (t) => {
  const engine = await startEngine(t, { onRequest: (asked) => asked.answer('"served"') });
  const url = await startWithFiles(t, 64, ['--worker-urls', engine.url]);
  await until('it serves', async () => (await send(t, url, HELLO)).status === 200);
  const client = await connectClient(t, url);
  client.write(HELLO);
  equal((await client.answer()).status, 200);
  const { refused, leave } = crowd(url, 200);
  await until('most are refused', () => refused() > 150);
  const statuses = [];
  for (let i = 0; i < 5; i++) {
    client.write(HELLO);
    statuses.push((await client.answer()).status);
  }
  deepEqual(statuses, [200, 200, 200, 200, 200]);
  client.write(request('GET', '/metrics'));
  match((await client.answer()).text, /turnout_refused_connections_total\{reason="files"\} [1-9]/);
  leave();
});

test('no file left at all: the router lives, and serves when the crowd has gone', async (t) => {
  const engine = await startEngine(t, { onRequest: (asked) => asked.answer('"served"') });
  const url = await startWithFiles(t, 64, ['--worker-urls', engine.url, '--max-connections', '100000']);
  await until('it serves', async () => (await send(t, url, HELLO)).status === 200);
  const { refused, leave } = crowd(url, 200);
  await until('some are refused', () => refused() > 50);
  leave();
  await until('it serves again', async () => (await send(t, url, HELLO).catch(() => null))?.status === 200);
});
