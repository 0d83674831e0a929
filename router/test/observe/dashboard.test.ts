import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import type { FeedEvent, SessionRow, WorkerRow } from '../../src/admin/dashboard/protocol.ts';
import { request, send } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { post, startFleetScene } from '../harness/fleet.ts';
import { startTestRouter } from '../harness/router.ts';
import { within } from '../harness/within.ts';

const isBuilt = existsSync(join(import.meta.dirname, '../../dist/dashboard/index.html'));

/** Reads the feed as the page does. */
class Reader {
  readonly workers = new Map<string, WorkerRow>();
  readonly sessions = new Map<string, SessionRow>();
  /** Rows in the last tick. */
  sent: string[] = [];
  resets = 0;
  readonly #events: AsyncGenerator<FeedEvent>;

  constructor(response: Response) {
    this.#events = eventsOf(response);
  }

  /** Up to the end of a tick. */
  async tick(): Promise<Extract<FeedEvent, { tick: number }>> {
    this.sent = [];
    for (;;) {
      const { value: event } = (await within(this.#events.next(), 'an event of the feed')) as { value: FeedEvent };
      if ('tick' in event) return event;
      if ('reset' in event) this.resets++;
      else if (event.table === 'workers') this.#take(this.workers, event, ({ url }) => url);
      else if (event.table === 'sessions') this.#take(this.sessions, event, ({ session }) => session);
    }
  }

  /** Up to a tick after which this is so. */
  async until(isSo: () => boolean): Promise<void> {
    do await this.tick();
    while (!isSo());
  }

  async leave(): Promise<void> {
    await this.#events.return(undefined);
  }

  #take<Row>(
    rows: Map<string, Row>,
    event: { set: readonly Row[]; gone: readonly string[] },
    keyOf: (row: Row) => string,
  ): void {
    for (const row of event.set) rows.set(keyOf(row), row);
    for (const key of event.gone)
      for (const [known, row] of rows) if (known === key || (row as { id?: string }).id === key) rows.delete(known);
    this.sent.push(...event.set.map(keyOf));
  }
}

async function* eventsOf(response: Response): AsyncGenerator<FeedEvent> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const bytes of response.body!) {
    text += decoder.decode(bytes, { stream: true });
    const events = text.split('\n\n');
    text = events.pop()!;
    for (const event of events) yield JSON.parse(event.slice('data: '.length)) as FeedEvent;
  }
}

async function follow(t: TestContext, url: string): Promise<Reader> {
  const response = await fetch(`${url}/dashboard/feed`);
  equal(response.headers.get('content-type'), 'text/event-stream');
  equal(response.headers.get('x-accel-buffering'), 'no');
  const reader = new Reader(response);
  t.after(() => reader.leave());
  return reader;
}

test('the feed sends everything first, and then what changed', async (t) => {
  const { router, engines, who } = await startFleetScene(t, 3, { policy: 'sticky_least_loaded' });
  const reader = await follow(t, router.url);
  await reader.tick();
  deepEqual([...reader.workers.keys()].toSorted(), engines.map(({ url }) => url).toSorted());
  const [first] = router.fleet.workers;
  await fetch(`${router.url}/workers/${first!.id}/drain`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: '{"state":"on"}',
  });
  await reader.until(() => reader.workers.get(first!.url)!.reasons.length > 0);
  deepEqual(reader.workers.get(first!.url)!.reasons, ['draining']);
  deepEqual(reader.sent, [first!.url], 'only the row that changed');
  const place = await who(post('/v1/completions', { prompt: 'Hi' }, ['x-session-id: s1', 'x-turnout-group: g']));
  await reader.until(() => reader.sessions.size > 0);
  const { worker, group, turns, in_flight: inFlight } = reader.sessions.get('s1')!;
  deepEqual([worker, group, turns, inFlight], [engines[place]!.url, 'g', 1, 0]);
  await fetch(`${router.url}/sessions/s1/finish`, { method: 'POST' });
  router.fleet.remove(first!);
  await reader.until(() => reader.workers.size < 3);
  equal(reader.sessions.size, 0);
  equal(reader.resets, 1);
});

test('the feed has the requests in flight by phase, and the exchanges that ended', async (t) => {
  const engine = await startEngine(t);
  const router = await startTestRouter(t, { workerUrls: [engine.url], policy: 'sticky_least_loaded' });
  const reader = await follow(t, router.url);
  await reader.tick();
  const answer = fetch(`${router.url}/v1/completions`, {
    method: 'POST',
    headers: { 'x-session-id': 's1', 'x-request-id': 'r1' },
    body: JSON.stringify({ prompt: 'Hi' }),
  });
  const asked = await engine.next();
  await reader.until(() => reader.sessions.get('s1')?.phase === 'waiting_for_first_byte');
  await asked.payload();
  asked.answer('{}');
  await (await answer).text();
  let ended: readonly { id: string }[] = [];
  while (ended.length === 0) ended = (await reader.tick()).exchanges;
  deepEqual(
    ended.map(({ id }) => id),
    ['r1'],
  );
  equal(reader.sessions.get('s1')!.phase, null);
});

test('a session whose request waits has a row, also before it has a worker', async (t) => {
  const engine = await startEngine(t);
  const router = await startTestRouter(t, {
    workerUrls: [engine.url],
    policy: 'sticky_least_loaded',
    maxConcurrentRequests: 1,
    queueSize: 4,
  });
  const reader = await follow(t, router.url);
  await reader.tick();
  const ask = (session: string): Promise<Response> => {
    const headers = { 'x-session-id': session, 'x-turnout-group': 'g' };
    return fetch(`${router.url}/v1/completions`, { method: 'POST', headers, body: '{"prompt":"Hi"}' });
  };
  const first = ask('s1');
  const running = await engine.next();
  const beganMs = Date.now();
  const second = ask('s2');
  await reader.until(() => reader.sessions.get('s2')?.phase === 'queued');
  const row = reader.sessions.get('s2')!;
  deepEqual(
    [row.worker, row.last, row.group, row.turns, row.in_flight, row.waits_for],
    [null, null, 'g', 0, 0, 'concurrency'],
  );
  ok(row.waits_since! >= beganMs - 1_000 && row.waits_since! <= Date.now() + 1_000, String(row.waits_since));
  running.answer('{}');
  const next = await engine.next();
  await reader.until(() => reader.sessions.get('s2')?.worker === engine.url);
  equal(reader.sessions.get('s2')!.waits_since, null);
  next.answer('{}');
  for (const answer of [first, second]) await (await answer).text();
});

test('an open page does not keep the router from closing', async (t) => {
  const engine = await startEngine(t);
  const router = await startTestRouter(t, { workerUrls: [engine.url] });
  const reader = await follow(t, router.url);
  await reader.tick();
  await within(router.close(2_000), 'the router closes');
});

test('the page may load nothing but its own files, and no page may frame it', async (t) => {
  const router = await startTestRouter(t, { adminApiKey: ['admin'] });
  const page = await fetch(`${router.url}/dashboard`);
  equal(page.status, isBuilt ? 200 : 501);
  match(
    page.headers.get('content-security-policy')!,
    /^default-src 'none'; script-src 'self';.*frame-ancestors 'none'$/,
  );
  equal(page.headers.get('x-content-type-options'), 'nosniff');
  const text = await page.text();
  if (!isBuilt) return match(text, /npm run build/);
  const [script] = /dashboard\/assets\/[\w-]+\.js/.exec(text)!;
  const file = await fetch(`${router.url}/${script}`);
  deepEqual([file.status, file.headers.get('content-type')], [200, 'text/javascript; charset=utf-8']);
  match(file.headers.get('cache-control')!, /immutable/);
  const etag = page.headers.get('etag')!;
  const again = await fetch(`${router.url}/dashboard`, { headers: { 'if-none-match': etag } });
  equal(again.status, 304);
});

test('only files of the page are served', async (t) => {
  const router = await startTestRouter(t);
  for (const path of [
    '/dashboard/assets/none.js',
    '/dashboard/assets/index.html',
    '/dashboard/assets/..%2findex.html',
  ]) {
    const { status } = await send(t, router.url, request('GET', path));
    ok(status === 404 || status === 503, `${path}: ${status}`);
  }
  const slash = await fetch(`${router.url}/dashboard/`, { redirect: 'manual' });
  deepEqual([slash.status, slash.headers.get('location')], [308, '../dashboard']);
});

test('with --dashboard off the paths are those of engines', async (t) => {
  const engine = await startEngine(t, { onRequest: (asked) => asked.answer('the engine') });
  const router = await startTestRouter(t, { workerUrls: [engine.url], dashboard: 'off' });
  for (const path of ['/dashboard', '/dashboard/feed', '/dashboard/assets/a.js'])
    equal(await (await fetch(router.url + path)).text(), 'the engine', path);
});

test('cached tokens are null in the row of a worker that reports none, and 0 where it reports 0', async (t) => {
  const counts = { prompt_tokens: 12, completion_tokens: 3 };
  const usages = [counts, { ...counts, prompt_tokens_details: { cached_tokens: 0 } }];
  const engines = await Promise.all(
    usages.map((usage) =>
      startEngine(t, { onRequest: (asked) => asked.answer(JSON.stringify({ choices: [], usage })) }),
    ),
  );
  const router = await startTestRouter(t, { workerUrls: engines.map(({ url }) => url), policy: 'round_robin' });
  for (let i = 0; i < 2; i++) {
    const got = await send(t, router.url, request('POST', '/v1/completions', JSON.stringify({ prompt: 'p' })));
    equal(got.status, 200);
  }
  const reader = await follow(t, router.url);
  await reader.until(() => [...reader.workers.values()].filter((row) => row.prompt_tokens === 12).length === 2);
  const cached = engines.map(({ url }) => reader.workers.get(url)!.cached_tokens);
  deepEqual(cached, [null, 0]);
});
