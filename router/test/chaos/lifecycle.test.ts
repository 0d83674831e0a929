import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, after, test } from 'node:test';
import { type Client, connectClient, request, send } from '../harness/client.ts';
import { STREAM_HEAD, deadUrl, startEngine } from '../harness/engine.ts';
import { connectAsker, post, startEngines } from '../harness/fleet.ts';
import { chunk } from '../harness/message.ts';
import { until } from '../harness/within.ts';
import { turnout } from '../cli/turnout.ts';
import { needsProc, startRouterProcess } from './router-process.ts';
import { metricOf, well } from './scene.ts';

const directory = mkdtempSync(join(tmpdir(), 'turnout-lifecycle-'));
after(() => rmSync(directory, { recursive: true, force: true }));

const GENERATE = request('POST', '/generate', '{"text":"x"}');

test('F47 streams that outlast the grace period: an error event, an incomplete body, and exit 0', async (t) => {
  const STREAMS = 20;
  const engine = await startEngine(t, {
    onRequest: ({ connection }) => connection.write(STREAM_HEAD + chunk('data: 1\n\n')),
  });
  const router = await startRouterProcess(t, [engine.url], ['--shutdown-grace-period-secs', '1']);
  const streams: Client[] = [];
  for (let i = 0; i < STREAMS; i++) {
    const client = await connectClient(t, router.url);
    client.write(request('POST', '/v1/completions', '{"prompt":"x"}'));
    await client.read(chunk('data: 1\n\n'));
    streams.push(client);
  }
  router.child.kill('SIGTERM');
  for (const client of streams) {
    await client.untilEnded();
    match(client.unread, /^[\da-f]+\r\ndata: \{.*shutting_down.*\}\n\n\r\n$/, 'an error event, and no last chunk');
  }
  for (const connection of engine.connections) await connection.untilEnded();
  equal(await router.ended, 0);
  equal(engine.requests.length, STREAMS);
});

/** A router whose options stand in a file, and what changes them: SIGHUP. */
async function configured(t: TestContext, first: object) {
  const file = join(mkdtempSync(join(directory, 'config-')), 'turnout.yaml');
  const write = (config: object): void => writeFileSync(file, JSON.stringify(config));
  write(first);
  const run = turnout(t, [
    'serve',
    '--config',
    file,
    '--port',
    '0',
    '--prometheus-port',
    '0',
    '--disable-health-check',
  ]);
  const [, url] = await run.says(/listening on (http:\/\/[^\s"]+)/);
  const workers = async (): Promise<string[]> => {
    const { urls } = (await (await fetch(`${url}/list_workers`)).json()) as { urls: string[] };
    return urls;
  };
  const reload = (config: object | string): void => {
    if (typeof config === 'string') writeFileSync(file, config);
    else write(config);
    run.child.kill('SIGHUP');
  };
  return { url: url!, run, workers, reload };
}

test('F48 SIGHUP under load changes engines, policy and limits: no failure, sessions keep their engine', async (t) => {
  const engines = await startEngines(t, 4);
  const urls = engines.map(({ url }) => url);
  const base = { policy: 'sticky_least_loaded', 'worker-urls': urls.slice(0, 3) };
  const { url, run, workers, reload } = await configured(t, base);
  const sessions = Array.from({ length: 30 }, (_, i) => post('/generate', { text: 'x', session_id: `s${i}` }));
  const asker = await connectAsker(t, { url });
  const homes = await asker.whoGets(sessions);
  let isDone = false;
  t.after(() => (isDone = true));
  let sent = 0;
  const load = Promise.all(
    Array.from({ length: 6 }, async () => {
      const other = await connectAsker(t, { url });
      for (; !isDone; sent++) await other.who(GENERATE);
    }),
  );
  for (let round = 0; round < 3; round++) {
    const from = sent;
    reload({ ...base, 'worker-urls': urls, 'max-concurrent-requests': 1_000 + round });
    await until('the fourth engine is there', async () => (await workers()).length === 4);
    await until('some go by', () => sent > from + 30);
    reload({ ...base, 'model-policy': [`m=${round % 2 === 0 ? 'random' : 'round_robin'}`] });
    await until('it has gone', async () => (await workers()).length === 3);
  }
  deepEqual(await asker.whoGets(sessions), homes);
  isDone = true;
  await load;
  ok(engines[3]!.requests.length > 0, 'the fourth engine got work while it was there');
  equal(
    engines.reduce((sum, engine) => sum + engine.requests.length, 0),
    sent + 2 * sessions.length,
  );
  equal(await metricOf(`${url}/metrics`, 'turnout_requests_total{outcome="complete"}'), sent + 2 * sessions.length);
  await until(
    'nothing is under way',
    async () => (await metricOf(`${url}/metrics`, 'turnout_requests_in_flight')) === 0,
  );
  equal(run.child.exitCode, null);
});

test('F48 a configuration that can not be read, or is wrong: the old one stays', async (t) => {
  const [engine] = await startEngines(t, 1);
  const base = { policy: 'round_robin', 'worker-urls': [engine!.url] };
  const { url, run, workers, reload } = await configured(t, base);
  const asker = await connectAsker(t, { url });
  for (const wrong of ['policy: [', { ...base, policy: 'best' }, { ...base, 'worker-urls': ['ftp://x'] }]) {
    const from = run.output().length;
    reload(wrong);
    await until('it says so', () => /"level":"(warning|error|critical)"/.test(run.output().slice(from)));
    equal(await asker.who(GENERATE), 0);
    deepEqual(await workers(), [engine!.url]);
  }
  equal(engine!.requests.length, 3);
});

test('F49 --reuse-port: a second router takes over under load, and no stream is lost', async (t) => {
  const engine = await startEngine(t, { onRequest: well() });
  const { hostname, port } = new URL(await deadUrl());
  const options = ['--host', hostname, '--port', port, '--reuse-port'];
  const start = () => startRouterProcess(t, [engine.url], options);
  const old = await start();
  const streaming = await connectClient(t, old.url);
  engine.onRequest = ({ connection }) => connection.write(STREAM_HEAD + chunk('data: 1\n\n'));
  streaming.write(GENERATE);
  await streaming.read('data: 1\n\n');
  const [stream] = engine.requests.slice(-1);
  engine.onRequest = well();

  const counts = { served: 0, refused: 0, reset: 0, lost: 0 };
  let isDone = false;
  t.after(() => (isDone = true));
  /** A reset may come before this process has heard that it was connected. */
  const connected = async (): Promise<Client | null> =>
    connectClient(t, old.url).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ECONNRESET') counts.reset++;
      else counts.refused++;
      return null;
    });
  /** A connection a request: the most that a change of listeners can hit. */
  const runFresh = async (): Promise<void> => {
    while (!isDone) {
      const client = await connected();
      if (client === null) continue;
      client.write(GENERATE);
      const got = await client.answerOrNone();
      if (got?.status === 200) counts.served++;
      else if (client.bytesReceived === 0) counts.reset++;
      else counts.lost++;
      client.socket.destroy();
    }
  };
  /** A client that keeps its connection as long as it is let. */
  const runKept = async (): Promise<void> => {
    while (!isDone) {
      const client = await connected();
      for (let isOpen = client !== null; isOpen && !isDone;) {
        client!.write(GENERATE);
        const earlier = client!.bytesReceived;
        const got = await client!.answerOrNone();
        if (got?.status === 200) counts.served++;
        else if (client!.bytesReceived === earlier) counts.reset++;
        else counts.lost++;
        isOpen = got !== null && got.get('connection') !== 'close';
      }
      client?.socket.destroy();
    }
  };
  const load = Promise.all([runFresh(), runFresh(), runFresh(), runKept(), runKept(), runKept()]);
  await until('load runs', () => counts.served > 100);
  const next = await start();
  await until('the new one serves', async () => (await next.metric('turnout_requests_total{outcome="complete"}')) > 20);
  old.child.kill('SIGTERM');
  const from = counts.served;
  await until('the new one serves alone', () => counts.served > from + 300);
  stream!.connection.write(`${chunk('data: 2\n\n')}0\r\n\r\n`);
  await streaming.read('data: 2\n\n');
  await streaming.read('0\r\n\r\n');
  equal(await old.ended, 0);
  isDone = true;
  await load;
  t.diagnostic(`taken over under load: ${JSON.stringify(counts)}`);
  equal(counts.refused, 0, 'somebody listened at all times');
  equal(counts.lost, 0, 'what was taken was answered');
  // Linux resets what waits in the queue of a listener that closes: connections that nobody had accepted. Clients retry
  // those, as nothing was read.
  ok(counts.reset <= 6, `${counts.reset} connections were reset before they were accepted`);
  await next.untilIdle();
});

test(
  'F55 --log-dir on a full disk: requests are served, and lost lines of the log are counted',
  { skip: needsProc },
  async (t) => {
    const logs = mkdtempSync(join(directory, 'logs-'));
    symlinkSync('/dev/full', join(logs, 'turnout.log'));
    const engine = await startEngine(t, { onRequest: well() });
    const options = ['--log-dir', logs, '--access-log'];
    const router = await startRouterProcess(t, [engine.url], options);
    for (let i = 0; i < 50; i++) equal((await send(t, router.url, GENERATE)).status, 200);
    equal(engine.requests.length, 50);
    await until('lost lines are counted', async () => (await router.metric('turnout_log_dropped_lines_total')) > 0);
    await router.untilIdle();
    router.child.kill('SIGTERM');
    equal(await router.ended, 0);
  },
);
