import { deepEqual, equal, notEqual, ok } from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, readdirSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { pino } from 'pino';
import { type SimEngine, startSimEngine } from '../../../simulator/src/engine.ts';
import type { FinishedRecord } from '../../../simulator/src/model/sequence.ts';
import { needsProc, preloaded, residentBytes, startRouterProcess } from '../chaos/router-process.ts';
import { startTestRouter } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';
import { TinkerClient, asked } from './scene.ts';
import { often } from '../harness/often.ts';

async function startEngines(t: TestContext, finished: FinishedRecord[] = []): Promise<SimEngine[]> {
  const onFinished = (record: FinishedRecord): void => void finished.push(record);
  const kinds = ['vllm', 'sglang'] as const;
  const engines = await Promise.all(kinds.map((kind) => startSimEngine({ kind, timeScale: 0, onFinished })));
  for (const engine of engines) t.after(() => engine.close());
  return engines;
}

const start = async (
  t: TestContext,
  engines: readonly SimEngine[],
  options: readonly string[] = [],
  env: NodeJS.ProcessEnv = {},
) => {
  const urls = engines.map(({ url }) => url);
  const all = ['--tinker', '--policy', 'consistent_hash', '--health-check-interval-secs', '1', ...options];
  const run = await startRouterProcess(t, urls, all, { env });
  const ready = async (): Promise<boolean> => {
    const { workers } = (await (await fetch(`${run.url}/workers`)).json()) as {
      workers: { is_healthy: boolean; models?: unknown }[];
    };
    return workers.every((worker) => worker.is_healthy && worker.models !== null);
  };
  await until('the router knows its engines', ready);
  return { ...run, client: new TinkerClient(run.url) };
};

const compare = (a: string, b: string): number => (a < b ? -1 : 1);

test('a router that is killed goes on with sessions, sampling sessions and open samples when it is back', async (t) => {
  const finished: FinishedRecord[] = [];
  const engines = await startEngines(t, finished);
  const dataDir = ['--data-dir', temporaryFolder(t)];
  const first = await start(t, engines, dataDir);
  const { session_id } = await first.client.get('/create_session', {});
  const { sampling_session_id } = await first.client.get('/create_sampling_session', {
    session_id,
    sampling_session_seq_id: 0,
    base_model: 'sim',
  });
  const session = String(sampling_session_id);
  const { request_id: fetched } = await first.client.get('/asample', asked(session, 0));
  equal((await first.client.result(fetched))['status'], 200);
  for (const { core } of engines) await core.pause('keep');
  const ids = [];
  for (let seq = 1; seq <= 30; seq++) ids.push((await first.client.get('/asample', asked(session, seq)))['request_id']);
  const { request_id: cancelled } = await first.client.get('/asample', asked(session, 99));
  equal((await first.client.call('/cancel_future', { request_id: cancelled })).status, 204);
  await until(
    'the file of the cancelled sample is gone',
    () => readdirSync(join(dataDir[1]!, 'tinker-samples')).length === 30,
  );
  const polls = ids.map((id) => first.client.result(id).catch(() => null));
  first.child.kill('SIGKILL');
  await once(first.child, 'exit');
  deepEqual([...new Set(await Promise.all(polls))], [null]);
  mkdirSync(join(dataDir[1]!, 'tinker-samples', 'lost+found'));
  // What the end of the process cut off is no sample, and no reason not to start.
  const cut = join(dataDir[1]!, 'tinker-samples', 'turnout-1-0-000000000000000000');
  writeFileSync(cut, '{"tenant":"","bytes":10}\n{"pro');
  utimesSync(cut, 1, 1);

  // An engine that is paused fails its health checks.
  for (const { core } of engines) core.resume();
  const { client } = await start(t, engines, dataDir);
  for (const id of ids) {
    const { status, sequences } = await client.result(id);
    equal(status, 200);
    equal((sequences as unknown[]).length, 1);
  }
  equal(
    (await client.call('/retrieve_future', { request_id: fetched })).status,
    410,
    'its result was fetched, and is not kept',
  );
  deepEqual(await client.get('/session_heartbeat', { session_id }), { type: 'session_heartbeat' });
  equal((await client.get(`/samplers/${session}`))['base_model'], 'sim');
  await client.sample(asked(session, 31));
  const keys = new Set(
    finished.filter(({ finish }) => finish.type !== 'abort').map((record) => String(record.session)),
  );
  deepEqual([...keys].toSorted(compare), Array.from({ length: 32 }, (_, seq) => `${session}:${seq}`).toSorted(compare));
  await until('nothing is kept', () => readdirSync(join(dataDir[1]!, 'tinker-samples')).join() === 'lost+found');
});

test('no client of a router that comes back gets 410 for a sample that is open', async (t) => {
  const [engine] = await startEngines(t);
  const dataDir = temporaryFolder(t);
  mkdirSync(join(dataDir, 'tinker-samples'));
  const {
    sampling_session_id: _,
    seq_id: __,
    ...sample
  } = asked('', 0, { base_model: 'sim' }) as Record<string, unknown>;
  const body = JSON.stringify(sample);
  const ids = Array.from({ length: 400 }, (_id, i) => `turnout-1-${i.toString(36)}-000000000000000000`);
  for (const id of ids) {
    const line = JSON.stringify({ tenant: '', bytes: Buffer.byteLength(body) });
    writeFileSync(join(dataDir, 'tinker-samples', id), `${line}\n${body}`);
  }
  const first = Promise.withResolvers<number>();
  const write = (text: string): void => {
    const [, url] = /"listening on (http:[^\s"]+)/.exec(text) ?? [];
    if (url === undefined) return;
    const polled = new TinkerClient(url).call('/retrieve_future', { request_id: ids.at(-1) });
    polled.then(({ status }) => first.resolve(status), first.reject);
  };
  const options = { tinker: true, policy: 'consistent_hash', workerUrls: [engine!.url], dataDir, tinkerPollSecs: 0.1 };
  const { url } = await startTestRouter(t, options, { log: pino({ level: 'info' }, { write }) });
  notEqual(await first.promise, 410);
  const client = new TinkerClient(url);
  for (const id of ids) equal((await client.result(id))['status'], 200);
});

test('without --data-dir a restart forgets, and says so: samples are 410', async (t) => {
  const engines = await startEngines(t);
  const first = await start(t, engines);
  const { request_id } = await first.client.get('/asample', asked(await first.client.samplingSession(), 0));
  first.child.kill('SIGKILL');
  await once(first.child, 'exit');
  const { client } = await start(t, engines);
  equal((await client.call('/retrieve_future', { request_id })).status, 410);
});

/** Collects garbage at a signal, and says how much memory is in use then. At another one, half a minute passes at once. */
const COLLECTING = preloaded(`
  import { setFlagsFromString } from 'node:v8';
  import { runInNewContext } from 'node:vm';
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc');
  let count = 0;
  process.on('SIGUSR2', () => {
    collect();
    collect();
    const { heapUsed, external } = process.memoryUsage();
    console.error('collection ' + ++count + ': ' + (heapUsed + external));
  });
  const now = performance.now.bind(performance);
  let aheadMs = 0;
  performance.now = () => now() + aheadMs;
  process.on('SIGWINCH', () => (aheadMs += 30_000));
`);

const prompt = { chunks: [{ type: 'encoded_text', tokens: Array.from({ length: 256 }, (_, i) => 1000 + i) }] };

/** Submits so many samples, 16 at a time. */
async function submit(client: TinkerClient, session: string, count: number): Promise<unknown[]> {
  const ids: unknown[] = [];
  let seq = 0;
  const some = async (): Promise<void> => {
    while (seq < count) ids.push((await client.get('/asample', asked(session, seq++, { prompt })))['request_id']);
  };
  await Promise.all(Array.from({ length: 16 }, some));
  return ids;
}

async function fetchAll(client: TinkerClient, ids: readonly unknown[]): Promise<void> {
  const results = await Promise.all(ids.map((id) => client.result(id)));
  for (const { status, sequences } of results) ok(status === 200 && (sequences as unknown[]).length === 1);
}

const COUNT = often(500, 2_000);

test(`${COUNT} samples in flight take at most ${COUNT / 25} MB, which come back`, { skip: needsProc }, async (t) => {
  const engines = await startEngines(t);
  const router = await start(t, engines, ['--data-dir', temporaryFolder(t)], COLLECTING);
  const { client } = router;
  let collections = 0;
  /** What the process holds without garbage. */
  const used = async (): Promise<{ rss: number; heap: number }> => {
    router.child.kill('SIGUSR2');
    const [, bytes] = await router.says(new RegExp(`collection ${++collections}: (\\d+)`));
    return { rss: residentBytes(router), heap: Number(bytes) };
  };
  const session = await client.samplingSession();
  // A first round: code is compiled, pools of memory are filled.
  await fetchAll(client, await submit(client, session, COUNT));
  const idle = await used();
  for (const { core } of engines) await core.pause('keep');
  const ids = await submit(client, session, COUNT);
  const polls = fetchAll(client, ids);
  await until('all are at engines', async () => (await router.metric('turnout_requests_in_flight')) === COUNT);
  const busy = await used();
  t.diagnostic(
    `${Math.round(idle.rss / 1e6)} MB idle, ${Math.round(busy.rss / 1e6)} MB with ${COUNT} samples and polls`,
  );
  ok(busy.rss - idle.rss <= COUNT * 40e3, `${busy.rss - idle.rss} bytes`);
  for (const { core } of engines) core.resume();
  await polls;
  // Fetched results are kept for 30 s.
  router.child.kill('SIGWINCH');
  const isBack = async (): Promise<boolean> => {
    await delay(250);
    return (await used()).heap - idle.heap <= 3e6;
  };
  await until('the memory is back', isBack, 60_000);
});

test('a kill in the middle of 400 samples loses none', { skip: needsProc }, async (t) => {
  const engines = await startEngines(t);
  const dataDir = ['--data-dir', temporaryFolder(t)];
  const first = await start(t, engines, dataDir);
  const session = await first.client.samplingSession();
  for (const { core } of engines) await core.pause('keep');
  const ids = await submit(first.client, session, 400);
  for (const { core } of engines) core.resume();
  const some = ids.slice(0, 100);
  await fetchAll(first.client, some);
  first.child.kill('SIGKILL');
  await once(first.child, 'exit');
  const { client } = await start(t, engines, dataDir);
  await fetchAll(client, ids.slice(100));
});
