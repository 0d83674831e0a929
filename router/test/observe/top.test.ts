import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { renderTop } from '../../src/cli/render-top.ts';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import { spawnSimEngine } from '../../../simulator/src/spawn.ts';
import { turnout } from '../cli/turnout.ts';
import { startEngine } from '../harness/engine.ts';
import { startTestRouter } from '../harness/router.ts';
import { until, within } from '../harness/within.ts';

/** Three simulated engines, a router with all defaults, six sessions of two turns; then one engine is killed and each session goes on. */
async function stagedFleet(t: TestContext) {
  const engines = await Promise.all(
    Array.from({ length: 3 }, async () => {
      const engine = await spawnSimEngine({ timeScale: 0, meanOutputTokens: 8 });
      t.after(() => engine.kill());
      return engine;
    }),
  );
  const urls = engines.map(({ url }) => url);
  const run = turnout(t, [
    'serve',
    '--port',
    '0',
    '--prometheus-port',
    '0',
    '--worker-header',
    '--worker-urls',
    ...urls,
  ]);
  const [, url] = await run.says(/listening on (http:\/\/127\.0\.0\.1:\d+)/);
  const homes = new Map<string, string>();
  const turn = async (session: string, i: number): Promise<string> => {
    const content = `${session} ${'says something '.repeat(30 * i)}`;
    const response = await fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-session-id': session, 'x-request-id': `${session}-${i}` },
      body: JSON.stringify({ model: 'sim', messages: [{ role: 'user', content }] }),
    });
    equal(response.status, 200, await response.text());
    return response.headers.get('x-turnout-worker')!;
  };
  const sessions = Array.from({ length: 6 }, (_, i) => `rollout-${i}`);
  for (const session of sessions) homes.set(session, await turn(session, 1));
  const dead = engines.find((engine) => engine.url === homes.get('rollout-0'))!;
  await dead.kill();
  for (const session of sessions) await turn(session, 2);
  const moved = sessions.filter((session) => homes.get(session) === dead.url);
  return { url: url!, dead: dead.url, moved, stayed: sessions.filter((session) => !moved.includes(session)), homes };
}

/** One command, and what it prints. */
async function command(t: TestContext, ...args: readonly string[]): Promise<string> {
  const run = turnout(t, args);
  equal(await within(run.ended, `turnout ${args.join(' ')}`), 0, run.output());
  return run.output();
}

const lineOf = (text: string, beginning: RegExp): string => text.split('\n').find((line) => beginning.test(line)) ?? '';

test('in a staged fleet: "why this worker?" and "which sessions moved, and why?" are one command each', async (t) => {
  const { url, dead, moved, stayed, homes } = await stagedFleet(t);
  ok(moved.length > 0 && stayed.length > 0);

  const all = await command(t, 'top', url, '--once');
  const [, list = ''] = all.split(/^MOVED-SESSION.*\n/m);
  const movedLines = list.split('\n\n')[0]!.split('\n');
  deepEqual(movedLines.map((line) => line.split(/\s+/)[0] ?? '').toSorted(), moved.toSorted());
  for (const line of movedLines) {
    match(line, /the worker failed the request|worker unhealthy|circuit breaker of the worker open/);
    equal(line.split(/\s+/)[2], dead);
  }
  match(lineOf(all, /^sessions /), new RegExp(`^sessions   6, moves: ${moved.length} `));

  const why = await command(t, 'top', url, '--once', '--session', moved[0]!);
  match(
    lineOf(why, new RegExp(`^${moved[0]} +http.* 2 +1 `)),
    /(retry|moved: worker unhealthy|moved: circuit breaker.*)$/,
  );
  const home = await command(t, 'top', url, '--once', '--session', stayed[0]!);
  match(lineOf(home, new RegExp(`^${stayed[0]} `)), new RegExp(`^${stayed[0]} +${homes.get(stayed[0]!)} .* home$`));

  // The same by curl.
  const response = await within(fetch(`${url}/sessions?moved=1`), 'GET /sessions');
  const { sessions } = (await response.json()) as { sessions: { session: string; last_move: { from: string } }[] };
  deepEqual(sessions.map(({ session }) => session).toSorted(), moved.toSorted());
  ok(sessions.every(({ last_move }) => last_move.from === dead));
});

test('what each engine took in the last minute is in its line of turnout top', async (t) => {
  const engines = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const engine = await startSimEngine({ timeScale: 0.1, meanOutputTokens: 8 });
      t.after(() => engine.close());
      return engine.url;
    }),
  );
  const router = await startTestRouter(t, { workerUrls: engines, policy: 'round_robin' });
  const ask = async (prompt: string): Promise<void> => {
    const body = JSON.stringify({ model: 'sim', prompt, max_tokens: 8, stream: true });
    const headers = { 'content-type': 'application/json' };
    await (await fetch(`${router.url}/v1/completions`, { method: 'POST', headers, body })).text();
  };
  await Promise.all(Array.from({ length: 8 }, (_, i) => ask(`prompt ${i}`)));
  const lines = (await command(t, 'top', router.url, '--once')).split('\n');
  const head = lines.findIndex((line) => line.startsWith('WORKER '));
  match(lines[head]!, /^WORKER +STATE +REQUESTS +SESSIONS +TTFT +TOKEN-GAP +RESPONSE$/);
  const rows = lines.slice(head + 1, head + 5);
  for (const url of engines)
    ok(
      rows.some((row) => new RegExp(`^${url}  ready .* \\d+m?s +(\\d+m?s|-) +\\d+m?s`).test(row)),
      rows.join('\n'),
    );
});

/** What `turnout top` shows of workers with these times, as they are relative to a usual engine. */
function shownWorkers(...workers: readonly (readonly ['regular' | 'prefill' | 'decode', number])[]): string {
  const text = renderTop(
    {
      url: 'http://r',
      requests: { total: 0, phases: {}, waits: [], requests: [] },
      sessions: { total: 0, by_worker: {}, moves_by_reason: {}, sessions: [], recent_moves: [] },
      workers: workers.map(([role, times], i) => ({
        url: `http://w${i}`,
        load: 0,
        status: 'ready',
        not_serving_because: [],
        worker_type: role,
        last_minute: { time_to_first_token_secs: 0.2, inter_token_gap_secs: 0.01 * times, response_secs: 2 },
      })),
    },
    { rows: 9, columns: 120 },
  );
  return text.split(/^WORKER .*\n/m)[1] ?? '';
}

test('one engine of four is slow: turnout top lists it first and says so', () => {
  const rows = shownWorkers(['regular', 1.1], ['regular', 1], ['regular', 0.9], ['regular', 5]);
  match(rows, /^http:\/\/w3 +ready +0 +0 +200ms +50ms +2000ms +← slow: 5\.0 times the median\n/);
  deepEqual(
    rows.split('\n').map((row) => [row.split(' ')[0], row.includes('slow')]),
    [['http://w3', true], ...[0, 1, 2].map((i) => [`http://w${i}`, false]), ['', false]],
  );
});

test('the sessions of a worker are all of it, however few are listed', () => {
  const text = renderTop(
    {
      url: 'http://r',
      requests: { total: 0, phases: {}, waits: [], requests: [] },
      sessions: {
        total: 40_000,
        by_worker: { 'http://w0': 30_000 },
        moves_by_reason: {},
        sessions: [],
        recent_moves: [],
      },
      workers: ['http://w0', 'http://w1'].map((url) => ({
        url,
        load: 0,
        status: 'ready',
        not_serving_because: [],
        worker_type: 'regular',
        last_minute: { time_to_first_token_secs: null, inter_token_gap_secs: null, response_secs: null },
      })),
    },
    { rows: 9, columns: 120 },
  );
  match(text, /^http:\/\/w0 +ready +0 +30000 /m);
  match(text, /^http:\/\/w1 +ready +0 +0 /m);
});

test('the halves of pairs are compared with workers of their own role', () => {
  const rows = shownWorkers(
    ['prefill', 1],
    ['prefill', 1],
    ['prefill', 1],
    ['prefill', 1],
    ['decode', 5],
    ['decode', 5],
    ['decode', 5],
  );
  equal(rows.includes('slow'), false, rows);
});

test('of twelve held turns: which is the oldest, since when, its limit and what they wait for', () => {
  const waits = [
    {
      phase: 'held',
      reason: 'kv_cache_full',
      count: 12,
      waits_for:
        'KV cache space: the contexts of the open sessions exceed what the engines hold; sent anyway after 60 s',
      oldest: { id: 'r8', session: 's\x1b8', turn: 7, waiting_secs: 31.1, limit_secs: 60 },
    },
    {
      phase: 'queued',
      reason: 'rate',
      count: 1,
      waits_for: 'the rate limit',
      oldest: { id: 'r9', session: null, turn: null, waiting_secs: 2, limit_secs: 60 },
    },
  ] as const;
  const text = renderTop(
    {
      url: 'http://r',
      requests: { total: 13, phases: { held: 12, queued: 1 }, waits, requests: [] },
      sessions: { total: 13, by_worker: {}, moves_by_reason: {}, sessions: [], recent_moves: [] },
      workers: [],
    },
    { rows: 2, columns: 200 },
  );
  deepEqual(text.split('\n').slice(2, 7), [
    'requests   13 (12 held, 1 queued)',
    'held       12 kv_cache_full, the oldest for 31.1s of 60s: session s?8, turn 7',
    '           waits for KV cache space: the contexts of the open sessions exceed what the engines hold; sent anyway after 60 s',
    'queued     1 rate, the oldest for 2s of 60s: request r9',
    '           waits for the rate limit',
  ]);
});

test('piped without --once: a snapshot at each interval', async (t) => {
  const router = await startTestRouter(t);
  const run = turnout(t, ['top', router.url, '--interval', '0.1']);
  await until('three snapshots', () => run.output().split('turnout at ').length > 3);
  equal(run.output().includes('\x1b'), false);
});

test('a router that does not respond, that needs a key, or that is another server: a line, exit code 2', async (t) => {
  const gone = await startEngine(t);
  gone.kill();
  const guarded = await startTestRouter(t, { apiKey: ['data'], adminApiKey: ['admin'] });
  const elsewhere = await startTestRouter(t, { adminPort: 0 });
  for (const [args, words] of [
    [[gone.url], /^turnout: http:\/\/[\d.:]+ does not answer: ECONNREFUSED\n$/],
    [[guarded.url], /answered 401\. A valid API key is required: .* Give an admin key with --api-key\.\n$/],
    [[guarded.url, '--api-key', 'data'], /answered 403\. .*it requires an admin key \(--admin-api-key\)\.\n$/],
    [[elsewhere.url], /answered 403\. This endpoint is only served on the admin port \(--admin-port\)\.\n$/],
    [[guarded.url, '--interval', 'x'], /--interval x: a number of seconds, 0\.1 or more/],
  ] as const) {
    const run = turnout(t, ['top', '--once', ...args]);
    equal(await run.ended, 2, run.output());
    match(run.output(), words);
  }
  match(await command(t, 'top', guarded.url, '--once', '--api-key', 'admin'), /^turnout at /);
});

test('what clients name can not steer the terminal, and long lists end', () => {
  const row = {
    worker: null,
    phase: 'held' as const,
    reason: 'r',
    age_secs: 1.5,
    waiting_secs: 1.2,
    last_byte_secs: null,
  };
  const requests = Array.from({ length: 5 }, (_, i) => ({ ...row, id: `r${i}`, session: 's\x1b[2J\n\u009b' }));
  const text = renderTop(
    {
      url: 'http://r',
      requests: { total: 5, phases: { held: 5 }, waits: [], requests },
      sessions: { total: 0, by_worker: {}, moves_by_reason: {}, sessions: [], recent_moves: [] },
      workers: [],
    },
    { rows: 2, columns: 80 },
  );
  equal(
    text,
    [
      'turnout at http://r',
      'workers    0, 0 available',
      'requests   5 (5 held)',
      'sessions   0, moves: 0',
      '',
      'REQUEST  SESSION  WORKER  PHASE  AGE   WAITED  LAST-BYTE  REASON',
      'r0       s?[2J??  -       held   1.5s  1.2s    -          r',
      'r1       s?[2J??  -       held   1.5s  1.2s    -          r',
      '… 3 more',
      '',
    ].join('\n'),
  );
});
