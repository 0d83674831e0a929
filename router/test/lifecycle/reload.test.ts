import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import { loadConfig } from '../../src/config/load.ts';
import { turnout } from '../cli/turnout.ts';
import { connectClient, request, send } from '../harness/client.ts';
import { connectAsker, post, startEngines, startFleetScene } from '../harness/fleet.ts';
import { policyModule } from '../harness/policy-module.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

interface Line {
  readonly level: number;
  readonly msg: string;
  readonly [field: string]: unknown;
}

/** A log whose lines are kept. */
function recorder() {
  const lines: Line[] = [];
  const log = pino({ level: 'info' }, { write: (text: string) => void lines.push(JSON.parse(text) as Line) });
  return { log, last: () => lines.at(-1)!, lines };
}

const configOf = (options: RouterOptions) =>
  loadConfig(
    { allowedHosts: ['h'], port: 0, prometheusPort: 0, disableHealthCheck: true, policy: 'least_inflight', ...options },
    {},
    undefined,
  );

const SESSIONS = Array.from({ length: 24 }, (_, i) => post('/v1/completions', { prompt: 'x', session_id: `s${i}` }));

test('workers: those that the configuration names come and go, those added through the API stay', async (t) => {
  const { log, last } = recorder();
  const [a, b, c, d] = (await startEngines(t, 4)).map(({ url }) => url);
  const router = await startTestRouter(t, { workerUrls: [a, b] }, { log });
  const urls = () => router.fleet.workers.map(({ url }) => url);
  await send(t, router.url, request('POST', `/add_worker?url=${c}`));
  const [first] = router.fleet.workers;
  await router.reload(() => configOf({ workerUrls: [`${a}/`, d] }));
  deepEqual(urls(), [a, c, d]);
  equal(router.fleet.workers[0], first, 'one that is named again is the same worker');
  deepEqual([last().msg, last()['changed']], ['configuration reloaded', ['--worker-urls']]);

  // What the API removed does not come back with the next reload.
  await send(t, router.url, request('POST', `/remove_worker?url=${a}`));
  await router.reload(() => configOf({ workerUrls: [`${a}/`, d] }));
  deepEqual(urls(), [c, d]);
});

test('what is wrong is said, and all stays as it was', async (t) => {
  const { log, last } = recorder();
  const [a, b] = (await startEngines(t, 2)).map(({ url }) => url);
  const router = await startTestRouter(t, { workerUrls: [a] }, { log });
  for (const [options, words] of [
    [{ workerUrls: [b, 'ftp://x'] }, /--worker-urls: "ftp:\/\/x"/],
    [{ workerUrls: [b], policy: './not/there.ts' }, /can't be loaded: ENOENT/],
    [{ workerUrls: [b], port: 'x' }, /--port: /],
  ] as const) {
    await router.reload(() => configOf(options));
    match(String(last()['error']), words);
    equal(last().msg, 'configuration not reloaded: the old one stays in force');
    deepEqual(
      router.fleet.workers.map(({ url }) => url),
      [a],
    );
  }
});

test('a worker that the fleet refuses leaves all as it was, and the corrected configuration is applied', async (t) => {
  const [a, b, c, d] = (await startEngines(t, 4)).map(({ url }) => url) as [string, string, string, string];
  const allow = { workerAllow: ['127.0.0.0/8'] };
  const pairs = { pdDisaggregation: true, prefill: [a] };
  for (const [first, refused, corrected, words] of [
    [
      { ...allow, workerUrls: [a] },
      { ...allow, workerUrls: ['http://10.9.9.9:8000', b], workerMaxInflight: 3 },
      { ...allow, workerUrls: [b] },
      /--worker-urls: "10\.9\.9\.9" is not allowed by --worker-allow/,
    ],
    [
      { ...pairs, decode: [b] },
      { ...pairs, decode: [c, d] },
      { ...pairs, decode: [d] },
      /--decode: That engine is in the fleet as prefill/,
    ],
    [
      { ...pairs, decode: [b] },
      { ...pairs, decode: [`${d}@1`] },
      { ...pairs, decode: [d] },
      /--decode: A data-parallel rank can't be one half of a pair/,
    ],
  ] as const) {
    const { log, last } = recorder();
    const router = await startTestRouter(t, first, { log });
    router.fleet.add(c, { role: 'prefill' });
    const workers = () => router.fleet.workers.map(({ url }) => url);
    const before = workers();
    await router.reload(() => configOf(refused));
    match(String(last()['error']), words);
    equal(last().msg, 'configuration not reloaded: the old one stays in force');
    deepEqual(workers(), before);
    await router.reload(() => configOf(corrected));
    equal(last().msg, 'configuration reloaded');
    deepEqual(workers(), [...before.slice(0, -2), c, 'pdDisaggregation' in first ? d : b]);
  }
});

test('the two halves of pairs may change places', async (t) => {
  const [a, b] = (await startEngines(t, 2)).map(({ url }) => url) as [string, string];
  const router = await startTestRouter(t, { pdDisaggregation: true, prefill: [a], decode: [b] });
  await router.reload(() => configOf({ pdDisaggregation: true, prefill: [b], decode: [a] }));
  deepEqual(
    router.fleet.workers.map(({ role, url }) => [role, url]),
    [
      ['prefill', b],
      ['decode', a],
    ],
  );
});

test('what takes a restart is named', async (t) => {
  const { log, lines } = recorder();
  const router = await startTestRouter(t, {}, { log });
  const atStart = { fireworksNames: 'off', sessionHeaders: ['x-own'], logFormat: 'text' };
  await router.reload(() => configOf({ port: 1, dataDir: '/nowhere', maxPayloadSize: 5, ...atStart }));
  const warning = lines.find(({ level }) => level === 40)!;
  deepEqual(
    new Set(warning['options'] as string[]),
    new Set(['--port', '--data-dir', '--fireworks-names', '--session-headers', '--log-format']),
  );
  deepEqual(lines.at(-1)!['changed'], ['--max-payload-size']);
  equal((await send(t, router.url, post('/x', { too: 'long' }))).status, 413);
});

test('limits and time-outs are in force for the next request', async (t) => {
  const { router, who } = await startFleetScene(t, 1);
  await router.reload(() => configOf({ workerUrls: router.config.workerUrls, requestTimeoutSecs: 0.05 }));
  equal(router.config.requestTimeoutSecs, 0.05);
  const engine = await startEngines(t, 1);
  engine[0]!.onRequest = null;
  await router.reload(() => configOf({ workerUrls: [engine[0]!.url], requestTimeoutSecs: 0.05 }));
  await who(post('/x', {})).then(
    () => ok(false),
    (error: Error) => match(error.message, /^504 /),
  );
});

for (const [policy, tuned] of [
  ['sticky_least_loaded', { sessionTtlSecs: 99 }],
  ['manual', { maxIdleSecs: 99 }],
  ['rollout', { residencyMaxWaitSecs: 99 }],
  ['consistent_hash', { hashLoadFactor: 5 }],
] as const) {
  test(`${policy}: sessions keep their engines when its options change`, async (t) => {
    const { router, whoGets } = await startFleetScene(t, 3, { policy });
    const homes = await whoGets(SESSIONS);
    const { workerUrls } = router.config;
    const policies = async () =>
      JSON.parse((await send(t, router.url, request('GET', '/policies'))).text) as { policies: { policy: string }[] };
    await router.reload(() => configOf({ workerUrls, policy, ...tuned }));
    deepEqual(await whoGets(SESSIONS), homes);
    await router.reload(() => configOf({ workerUrls, policy, ...tuned, modelPolicy: ['m=random'] }));
    deepEqual(
      (await policies()).policies.map((each) => each.policy),
      [policy, 'random'],
    );
    await router.reload(() => configOf({ workerUrls, policy: 'random' }));
    await router.reload(() => configOf({ workerUrls, policy }));
    deepEqual(
      (await policies()).policies.map((each) => each.policy),
      [policy],
    );
    deepEqual(await whoGets(SESSIONS), homes);
  });
}

for (const whose of ['the policy of a model', 'the policy itself'] as const) {
  test(`sessions that begin while ${whose} loads keep their engines`, async (t) => {
    const gate = { wait: Promise.resolve(), begun: (): void => {} };
    Object.assign(globalThis, { slowPolicy: gate });
    const slow = policyModule(
      t,
      `async ({ builtIn }) => {
        const policy = builtIn('sticky_least_loaded');
        globalThis.slowPolicy.begun();
        await globalThis.slowPolicy.wait;
        return policy;
      }`,
    );
    const usual = 'sticky_least_loaded';
    const named = whose === 'the policy itself' ? { policy: slow } : { policy: usual, modelPolicy: [`m=${slow}`] };
    const { router, whoGets } = await startFleetScene(t, 3, named);
    const before = await whoGets(SESSIONS.slice(0, 10));
    const load = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    Object.assign(gate, { wait: load.promise, begun: begun.resolve });
    const reload = router.reload(() =>
      configOf({ workerUrls: router.config.workerUrls, ...named, sessionTtlSecs: 99 }),
    );
    await begun.promise;
    const meanwhile = await whoGets(SESSIONS.slice(10));
    load.resolve();
    await reload;
    equal(router.config.sessionTtlSecs, 99);
    const { policies } = JSON.parse((await send(t, router.url, request('GET', '/policies'))).text) as {
      policies: [{ state: { sessions: number } }];
    };
    equal(policies[0].state.sessions, SESSIONS.length);
    deepEqual(await whoGets(SESSIONS.toReversed()), [...before, ...meanwhile].toReversed());
  });
}

test('a policy that was set while running stays until the configuration says something new', async (t) => {
  const { router, engines } = await startFleetScene(t, 2);
  const policy = async () => JSON.parse((await send(t, router.url, request('GET', '/policies'))).text) as unknown;
  await send(t, router.url, request('PUT', '/policies', '{"policy":"random"}'));
  const workerUrls = engines.map(({ url }) => url);
  await router.reload(() => configOf({ workerUrls, queueSize: 3 }));
  deepEqual(await policy(), { policies: [{ model: '', policy: 'random', state: {} }] });
  await router.reload(() => configOf({ workerUrls, policy: 'round_robin' }));
  match(JSON.stringify(await policy()), /round_robin/);
});

test('SIGHUP under load: no request fails, sessions keep their engines, streams go on', async (t) => {
  const engines = await startEngines(t, 3);
  const held = await startEngines(t, 1);
  held[0]!.onRequest = null;
  const file = join(temporaryFolder(t), 'turnout.yaml');
  const write = (more: string) => {
    const urls = engines.map(({ url }) => url).join(', ');
    writeFileSync(file, `port: 0\nprometheus-port: 0\ndisable-health-check: true\nworker-urls: [${urls}]\n${more}`);
  };
  write('policy: sticky_least_loaded\n');
  const run = turnout(t, ['--config', file]);
  const [, url] = await run.says(/listening on (http:\/\/127\.0\.0\.1:\d+)/);
  const asker = await connectAsker(t, { url: url! });
  const homes = await asker.whoGets(SESSIONS);

  let isLoading = true;
  let count = 0;
  const load = Promise.all(
    Array.from({ length: 8 }, async (_, i) => {
      const own = await connectAsker(t, { url: url! });
      for (let turn = i; isLoading; turn++) {
        const session = turn % SESSIONS.length;
        equal(await own.who(SESSIONS[session]!), homes[session]);
        count++;
      }
    }),
  );
  const reloads = () => run.output().split('configuration reloaded').length - 1;
  for (let i = 1; i <= 8; i++) {
    const before = count;
    await until('requests are under way', () => count > before + 100);
    write(
      `policy: sticky_least_loaded\nsession-ttl-secs: ${100 + i}\nretry-max-retries: ${i}\nmax-concurrent-requests: ${100 + i}\n`,
    );
    run.child.kill('SIGHUP');
    await until('it is reloaded', () => reloads() === i);
  }
  isLoading = false;
  await load;
  match(run.output(), /"changed":\["--session-ttl-secs"|"changed":\[.*"--session-ttl-secs"/);
  t.diagnostic(`${count} requests over 8 reloads, none failed`);

  write('policy: no_such\n');
  run.child.kill('SIGHUP');
  await run.says(/policy: no such policy.*the old one stays in force|"error":".*policy: no such policy/);
  deepEqual(await asker.whoGets(SESSIONS), homes);
});

test('SIGHUP: a file that was emptied removes no worker; an empty list does', async (t) => {
  const file = join(temporaryFolder(t), 'turnout.yaml');
  const basics = 'port: 0\nprometheus-port: 0\ndisable-health-check: true\n';
  writeFileSync(file, `${basics}worker-urls: ["127.0.0.1:9"]\n`);
  const run = turnout(t, ['--config', file]);
  const [, url] = await run.says(/listening on (http:\/\/127\.0\.0\.1:\d+)/);
  const count = async () =>
    (JSON.parse((await send(t, url!, request('GET', '/workers'))).text) as { workers: unknown[] }).workers.length;
  for (const [i, text] of ['', '# nothing\n', basics].entries()) {
    writeFileSync(file, text);
    run.child.kill('SIGHUP');
    await until('it is refused', () => run.output().split('Write \\"worker-urls: []\\" to remove').length === i + 2);
    equal(await count(), 1);
  }
  writeFileSync(file, `${basics}worker-urls: []\n`);
  run.child.kill('SIGHUP');
  await run.says(/configuration reloaded/);
  equal(await count(), 0);
});

test('SIGHUP changes the level of the log', async (t) => {
  const file = join(temporaryFolder(t), 'turnout.yaml');
  writeFileSync(
    file,
    'port: 0\nprometheus-port: 0\npolicy: consistent_hash\nworker-urls: ["127.0.0.1:9"]\ndisable-health-check: true\n',
  );
  const run = turnout(t, ['--config', file]);
  const [, url] = await run.says(/listening on (http:\/\/127\.0\.0\.1:\d+)/);
  writeFileSync(file, `${readFileSync(file, 'utf8')}log-level: debug\n`);
  run.child.kill('SIGHUP');
  await run.says(/configuration reloaded/);
  const client = await connectClient(t, url!);
  client.write(request('GET', '/x', '', ['x-session-id: s']));
  await run.says(/"level":"debug".*"msg":"exchange"/);
  // Policies and the account of each choice follow, too.
  match(run.output(), /consistent_hash: Extracted hash key: header:x-session-id:s/);
});
