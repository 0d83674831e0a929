import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { type Socket, connect } from 'node:net';
import { type TestContext, test } from 'node:test';
import { turnout } from '../cli/turnout.ts';
import { connectClient, request, send } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { startEngines } from '../harness/fleet.ts';
import { chunk } from '../harness/message.ts';
import { HELLO, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const KNOCKERS = 8;
const KEEPERS = 4;
const hasReusePort = process.platform === 'linux';

/** One request on a connection of its own. @returns how it ended */
function knock(port: number): Promise<'answered' | 'refused' | 'reset' | 'closed'> {
  return new Promise((resolve) => {
    const socket: Socket = connect(port, '127.0.0.1');
    let text = '';
    socket.on('connect', () => socket.write('GET /hello HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n'));
    socket.on('data', (bytes) => (text += bytes.toString()));
    socket.on('error', ({ code }: NodeJS.ErrnoException) => resolve(code === 'ECONNREFUSED' ? 'refused' : 'reset'));
    socket.on('close', () => resolve(text.startsWith('HTTP/1.1 200 ') ? 'answered' : 'closed'));
  });
}

test(
  'a second router takes over on the same port: no stream is lost, no request refused',
  { skip: !hasReusePort },
  async (t) => {
    const [quick] = await startEngines(t, 1);
    const slow = await startEngine(t);
    const start = async (port: string, engineUrl: string) => {
      const ports = ['--reuse-port', '--port', port, '--prometheus-port', '0'];
      const routing = ['--policy', 'least_inflight', '--disable-health-check', '--worker-urls', engineUrl];
      const run = turnout(t, ['serve', ...ports, ...routing]);
      const [, at] = await run.says(/listening on http:\/\/127\.0\.0\.1:(\d+)/);
      return { run, port: at! };
    };
    const old = await start('0', slow.url);
    const url = `http://127.0.0.1:${old.port}`;

    // Streams that run all the time, and a client that keeps its connection.
    const streams = await Promise.all(
      Array.from({ length: 20 }, async () => {
        const client = await connectClient(t, url);
        client.write(HELLO);
        const asked = await slow.next();
        asked.beginStream();
        await client.read('\r\n\r\n');
        return { client, asked };
      }),
    );
    // From here the old one answers at once, as the new one does.
    slow.onRequest = (asked) => asked.answer('{}');
    const ends = { answered: 0, refused: 0, reset: 0, closed: 0 };
    let isLoading = true;
    // Also where something below fails: they would go on for ever.
    t.after(() => (isLoading = false));
    const load = Promise.all(
      Array.from({ length: KNOCKERS }, async () => {
        while (isLoading) ends[await knock(Number(old.port))]++;
      }),
    );
    const keptAlive = { answered: 0, lost: 0 };
    const keepAlive = Promise.all(
      Array.from({ length: KEEPERS }, async () => {
        while (isLoading) {
          // A new connection may be reset, as those above may.
          const client = await connectClient(t, url).catch((error: NodeJS.ErrnoException) => {
            if (error.code !== 'ECONNRESET') throw error;
            return null;
          });
          if (client === null) ends.reset++;
          let answers = 0;
          for (let isOpen = client !== null; isOpen && isLoading;) {
            client!.write(HELLO);
            const answer = await client!.answerOrNone();
            isOpen = answer !== null && answer.get('connection') !== 'close';
            if (answer === null) {
              if (answers > 0) keptAlive.lost++;
              else ends.reset++;
              continue;
            }
            answers++;
            keptAlive.answered++;
          }
        }
      }),
    );
    await until('requests are answered', () => ends.answered > 100);
    const fresh = await start(old.port, quick!.url);
    equal(fresh.port, old.port);
    old.run.child.kill('SIGTERM');
    const before = ends.answered;
    await until(
      'requests are answered by the new one',
      () => quick!.requests.length > 200 && ends.answered > before + 200,
    );
    for (const { asked } of streams) asked.connection.write(`${chunk('data: 1\n\n')}0\r\n\r\n`);
    for (const { client } of streams) equal(await client.read('0\r\n\r\n'), `${chunk('data: 1\n\n')}0\r\n\r\n`);
    equal(await old.run.ended, 0);
    match(old.run.output(), /"cut":0,"msg":"drained"/);
    const after = ends.answered;
    await until('the new one is alone', () => ends.answered > after + 100);
    isLoading = false;
    await Promise.all([load, keepAlive]);
    // Between its last accept and its close the old socket may be given connections, which the system then resets: see
    // docs/guides/operations.md. No client has more than one then.
    t.diagnostic(`new connections: ${JSON.stringify(ends)}; kept connections: ${JSON.stringify(keptAlive)}`);
    deepEqual([ends.refused, ends.closed, keptAlive.lost], [0, 0, 0]);
    ok(ends.reset <= KNOCKERS + KEEPERS, `${ends.reset} resets`);
  },
);

test('without --reuse-port the second one says what to do', async (t) => {
  const router = await startTestRouter(t);
  const { port } = new URL(router.url);
  for (const more of [[], ['--reuse-port']]) {
    const run = turnout(t, ['serve', '--port', port, '--prometheus-port', '0', ...more]);
    equal(await run.ended, 2);
    match(run.output(), /another process listens there already. Choose another port, or give --reuse-port to both/);
  }
  equal((await send(t, router.url, request('GET', '/liveness'))).status, 200);
});

test('the port of the metrics can be shared as well', { skip: !hasReusePort }, async (t: TestContext) => {
  const first = await startTestRouter(t, { reusePort: true });
  const { port, pathname } = new URL(first.metricsUrl);
  const second = await startTestRouter(t, { reusePort: true, prometheusPort: Number(port) });
  equal(second.metricsUrl, first.metricsUrl);
  await first.close();
  equal((await send(t, second.metricsUrl, request('GET', pathname))).status, 200);
});
