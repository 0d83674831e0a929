import { outlineJson } from '../../src/recorder/thread/export/turn-json.ts';
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import type { Router } from '../../src/router.ts';
import { SqliteStore } from '../../src/recorder/thread/store/sqlite.ts';
import type { Turn } from '../../src/recorder/shared/turn.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { encode } from '../../../simulator/src/tokens/tokenizer.ts';
import { connectClient, request, send } from '../harness/client.ts';
import { startRespServer } from '../harness/resp-server.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { turnOf } from '../harness/turns.ts';
import { until } from '../harness/within.ts';

type Json = Record<string, unknown>;

/** A router over a store in which turns are already. */
async function routerOver(t: TestContext, turns: readonly Turn[], options: RouterOptions = {}): Promise<Router> {
  const dataDir = temporaryFolder(t);
  const store = new SqliteStore(dataDir);
  store.put(turns);
  store.close();
  return startTestRouter(t, { store: 'sqlite', dataDir, ...options });
}

async function ask(t: TestContext, router: Router, target: string, key?: string, method = 'GET') {
  const fields = key === undefined ? [] : [`authorization: Bearer ${key}`];
  const answer = await send(t, router.url, request(method, target, '', fields));
  const isJson = answer.get('content-type')?.startsWith('application/json') ?? false;
  return { ...answer, json: isJson ? (JSON.parse(answer.text) as Json) : {} };
}

const sessionsOf = (json: Json) => (json['trajectories'] as Json[]).map(({ session }) => session);

test('sessions are listed page by page, and narrowed to what one asks for', async (t) => {
  const first = turnOf({ session: 'a', group: 'g', startedAtMs: 1_000, ttftMs: 1, generationMs: 2 });
  const router = await routerOver(t, [
    first,
    turnOf({ session: 'a', parent: first.id, keeps: 3, startedAtMs: 5_000, ttftMs: 10, generationMs: 100 }),
    turnOf({ session: 'b/ü', versions: [{ version: '9', from: 0, to: 4 }] }),
    turnOf({ session: 'c' }),
  ]);
  const one = await ask(t, router, '/trajectories?limit=2');
  assert.equal(one.status, 200);
  assert.deepEqual((one.json['trajectories'] as Json[])[0], {
    session: 'a',
    group: 'g',
    tenant: '',
    turns: 2,
    trajectories: 1,
    exact: true,
    tokens: 7,
    models: ['tiny'],
    versions: ['7'],
    started_at_ms: 1_000,
    ended_at_ms: 5_110,
    finished: false,
    finished_at_ms: null,
    reward: null,
    labels: [],
  });
  const two = await ask(t, router, `/trajectories?limit=2&after=${String(one.json['next'])}`);
  assert.deepEqual([...sessionsOf(one.json), ...sessionsOf(two.json)], ['a', 'b/ü', 'c']);
  assert.equal(two.json['next'], null);
  const newest = await ask(t, router, '/trajectories?order=newest&limit=2');
  const older = await ask(t, router, `/trajectories?order=newest&limit=2&after=${String(newest.json['next'])}`);
  assert.deepEqual([...sessionsOf(newest.json), ...sessionsOf(older.json)], ['c', 'b/ü', 'a']);
  assert.deepEqual(sessionsOf((await ask(t, router, '/trajectories?version=9')).json), ['b/ü']);
  assert.deepEqual(sessionsOf((await ask(t, router, '/trajectories?group=g')).json), ['a']);
  assert.deepEqual(sessionsOf((await ask(t, router, '/trajectories?since=1970-01-01T00:01:00Z')).json), ['b/ü', 'c']);
  assert.equal((await ask(t, router, '/trajectories/a?session=b')).status, 400, 'the path names the session');
  for (const wrong of [
    'limit=0',
    'limit=5000',
    'since=yesterday',
    'format=csv',
    'order=up',
    'sesion=a',
    'format=jsonl&limit=3',
  ]) {
    const answer = await ask(t, router, `/trajectories?${wrong}`);
    assert.equal(answer.status, 400, wrong);
    assert.equal(answer.json['code'], 'bad_request');
    assert.doesNotMatch(String(answer.json['error']), /✖|Invalid|Unrecognized/);
  }
});

test("a session's turns come page by page with their tokens, and what was said", async (t) => {
  const first = turnOf({ session: 'a/b', request: Buffer.from('{"text":"hi"}') });
  const second = turnOf({ session: 'a/b', parent: first.id, keeps: 4, experts: null });
  const router = await routerOver(t, [first, second]);
  const one = await ask(t, router, '/trajectories/a%2Fb?limit=1');
  assert.equal(one.json['turns'], 2);
  const [turn] = one.json['page'] as Json[];
  assert.deepEqual(turn?.['tokens'], [...first.ids]);
  assert.deepEqual(turn['loss_mask'], [...first.mask]);
  assert.deepEqual(turn['rollout_log_probs'], [...first.logprobs]);
  assert.equal(turn['request'], '{"text":"hi"}');
  assert.equal(one.json['next'], first.id);
  const two = await ask(t, router, `/trajectories/a%2Fb?after=${first.id}`);
  assert.deepEqual(
    (two.json['page'] as Json[]).map(({ id, parent, keeps }) => [id, parent, keeps]),
    [[second.id, first.id, 4]],
  );
  const nobody = await ask(t, router, '/trajectories/nobody');
  assert.equal(nobody.status, 404);
  assert.equal(nobody.json['code'], 'session_not_found');
});

test('with ?texts=true turns have the text of each token; what is no UTF-8 alone comes as bytes', async (t) => {
  const folder = temporaryFolder(t);
  writeTokenizer(folder);
  const [word] = encode(' the');
  const ids = Int32Array.from([word!, 0x0a, ...Buffer.from('ü'), 2 ** 30]);
  const turns = [turnOf({ session: 'a', ids })];
  const router = await routerOver(t, turns, { tokenizerPath: folder });
  const textsIn = async (target: string, of = router): Promise<unknown> =>
    ((await ask(t, of, target)).json['page'] as Json[])[0]!['token_texts'];
  assert.deepEqual(await textsIn('/trajectories/a?texts=true'), [' the', '\n', [0xc3], [0xbc], null]);
  assert.equal(await textsIn('/trajectories/a'), undefined);
  const withoutTokenizer = await routerOver(t, turns);
  assert.equal(await textsIn('/trajectories/a?texts=true', withoutTokenizer), undefined);
});

test('/trajectory finds and deletes sessions of any name', async (t) => {
  const names = ['a//b', '../x', 'a b', 'ü', '%2F', '..', 'a/metrics', 'a+b&c=d'];
  const router = await routerOver(
    t,
    names.map((session) => turnOf({ session })),
  );
  for (const session of names) {
    const target = `/trajectory?session=${encodeURIComponent(session)}`;
    const found = await ask(t, router, `${target}&limit=1`);
    assert.deepEqual([found.json['session'], (found.json['page'] as Json[]).length], [session, 1]);
    const deleted = await ask(t, router, target, undefined, 'DELETE');
    assert.deepEqual(deleted.json, { session, removed: 1 });
    assert.equal((await ask(t, router, target)).status, 404);
  }
  for (const method of ['GET', 'DELETE']) {
    const { status, json } = await ask(t, router, '/trajectory', undefined, method);
    assert.equal(status, 400);
    assert.equal(json['error'], `The query names no session: ${method} /trajectory?session=NAME`);
  }
});

test('a page of turns ends where it gets large, and the next one goes on there', async (t) => {
  const request_ = Buffer.alloc(3_000_000, 'x');
  const turns = Array.from({ length: 3 }, () => turnOf({ session: 'large', request: request_ }));
  const router = await routerOver(t, turns);
  const ids: unknown[] = [];
  const sizes: number[] = [];
  for (let after = ''; ;) {
    const answer = await fetch(`${router.url}/trajectories/large?after=${after}`);
    const { page, next } = (await answer.json()) as { page: Json[]; next: string | null };
    ids.push(...page.map(({ id }) => id));
    sizes.push(page.length);
    if (next === null) break;
    after = next;
  }
  assert.deepEqual([ids, sizes], [turns.map(({ id }) => id), [2, 1]]);
});

test('the figures of a session: times, cache hits, workers', async (t) => {
  const first = turnOf({
    session: 'a',
    ttftMs: 10,
    generationMs: 100,
    promptTokens: 60,
    cachedTokens: 0,
    outputTokens: 20,
  });
  const second = turnOf({
    session: 'a',
    parent: first.id,
    ttftMs: 30,
    generationMs: 300,
    promptTokens: 100,
    cachedTokens: 80,
    outputTokens: 60,
    worker: 'http://127.0.0.1:30001',
    finishReason: 'length',
  });
  const silent = turnOf({
    session: 'a',
    ttftMs: 20,
    generationMs: 200,
    promptTokens: null,
    cachedTokens: null,
    outputTokens: null,
  });
  // vLLM tells of its cache only where it was started to.
  const uncounted = turnOf({ session: 'b', promptTokens: 7, cachedTokens: null });
  const router = await routerOver(t, [first, second, silent, uncounted]);
  const other = (await ask(t, router, '/trajectories/b/metrics')).json as Record<string, unknown>;
  const unknown = [other['cached_tokens'], other['cache_hit_rate'], outlineJson(uncounted).cached_tokens];
  assert.deepEqual([other['prompt_tokens'], ...unknown], [7, null, null, null]);
  const { json } = await ask(t, router, '/trajectories/a/metrics');
  assert.deepEqual(json, {
    session: 'a',
    turns: 3,
    ttft_ms: { mean: 20, p50: 20, p95: 30, max: 30, sum: 60 },
    generation_latency_ms: { mean: 200, p50: 200, p95: 300, max: 300, sum: 600 },
    latency_ms: { mean: 220, p50: 220, p95: 330, max: 330, sum: 660 },
    prompt_tokens: 160,
    cached_tokens: 80,
    cache_hit_rate: 0.5,
    output_tokens: 80,
    output_tokens_per_second: 200,
    engines: { 'http://127.0.0.1:30000': 2, 'http://127.0.0.1:30001': 1 },
    engine_changes: 1,
    versions: ['7'],
    unknown_logprobs: 0,
    finish_reasons: { stop: 2, length: 1 },
    drifts: {},
  });
  assert.equal((await ask(t, router, '/trajectories/nobody/metrics')).status, 404);
});

test('an answer that was no stream tells no time to the first token, and no pace', async (t) => {
  const times = { session: 'a', ttftMs: null, generationMs: 80, outputTokens: 20 };
  const [whole, stream] = [turnOf(times), turnOf({ session: 'b', ttftMs: 10, generationMs: 100, outputTokens: 20 })];
  const router = await routerOver(t, [whole, turnOf({ ...times, session: 'b' }), stream]);
  const figures = async (session: string) => {
    const { json } = await ask(t, router, `/trajectories/${session}/metrics`);
    const { ttft_ms, generation_latency_ms, latency_ms, output_tokens_per_second } = json as Record<string, unknown>;
    return [ttft_ms, generation_latency_ms, (latency_ms as { max: number }).max, output_tokens_per_second];
  };
  const one = (value: number) => ({ mean: value, p50: value, p95: value, max: value, sum: value });
  assert.deepEqual(await figures('a'), [null, null, 80, null]);
  assert.deepEqual(await figures('b'), [one(10), one(100), 110, 200]);
  const { json } = await ask(t, router, '/trajectories/a');
  assert.ok(JSON.stringify(json).includes('"ttft_ms":null'), JSON.stringify(json));
});

test('a session is removed, and is gone', async (t) => {
  const router = await routerOver(t, [turnOf({ session: 'a' }), turnOf({ session: 'a' }), turnOf({ session: 'b' })]);
  assert.deepEqual((await ask(t, router, '/trajectories/a', undefined, 'DELETE')).json, { session: 'a', removed: 2 });
  assert.equal((await ask(t, router, '/trajectories/a', undefined, 'DELETE')).status, 404);
  assert.deepEqual(sessionsOf((await ask(t, router, '/trajectories')).json), ['b']);
});

test('an export over HTTP is streamed: chunked, to the end, whatever its size', async (t) => {
  const request_ = Buffer.alloc(100_000, 'x');
  const turns = Array.from({ length: 100 }, (_, i) => turnOf({ session: `s${i}`, request: request_ }));
  const router = await routerOver(t, turns);
  const answer = await fetch(`${router.url}/trajectories?format=jsonl`);
  assert.equal(answer.headers.get('transfer-encoding'), 'chunked');
  assert.equal(answer.headers.get('content-type'), 'application/x-ndjson');
  const lines = (await answer.text()).trimEnd().split('\n');
  assert.deepEqual(
    lines.map((line) => (JSON.parse(line) as Json)['session']),
    turns.map(({ session }) => session),
  );
  const old = await connectClient(t, router.url);
  old.write('GET /trajectories?format=jsonl&session=s3 HTTP/1.0\r\n\r\n');
  const line = JSON.parse((await old.answer()).text) as Json;
  assert.equal(line['session'], 's3', 'an older client gets it until the connection closes');
});

test('a client that leaves an export ends it: as many can begin as before', async (t) => {
  const body = Buffer.alloc(1_000_000, 'x');
  const router = await routerOver(
    t,
    Array.from({ length: 30 }, () => turnOf({ session: 's', request: body })),
  );
  for (let i = 0; i < 6; i++) {
    const client = await connectClient(t, router.url);
    client.write(request('GET', '/trajectories?format=jsonl'));
    await client.read('"session":"s"');
    client.reset();
  }
  await until('there is room for another', async () => {
    const { status } = await ask(t, router, '/trajectories?format=safetensors&session=nobody');
    return status === 200;
  });
});

test('an export beside four others is refused for a time', async (t) => {
  const body = Buffer.alloc(1_000_000, 'x');
  const router = await routerOver(
    t,
    Array.from({ length: 30 }, () => turnOf({ session: 's', request: body })),
  );
  const leaving = new AbortController();
  // A response that nothing holds is closed with the next garbage collection.
  const held: Response[] = [];
  for (let i = 0; i < 4; i++)
    held.push(await fetch(`${router.url}/trajectories?format=jsonl`, { signal: leaving.signal }));
  assert.ok(held.every(({ status }) => status === 200));
  const refused = await ask(t, router, '/trajectories?format=jsonl');
  leaving.abort();
  assert.ok(held.every(({ bodyUsed }) => !bodyUsed));
  assert.deepEqual(
    [refused.status, refused.json['code'], refused.get('x-turnout-error'), refused.get('retry-after')],
    [503, 'overloaded', 'overloaded', '5'],
  );
});

test('a HEAD request leaves no export open', async (t) => {
  const router = await routerOver(t, [turnOf()]);
  for (let i = 0; i < 6; i++) {
    const head = await fetch(`${router.url}/trajectories?format=jsonl`, { method: 'HEAD' });
    assert.equal(head.status, 200);
    assert.equal(head.headers.get('content-type'), 'application/x-ndjson');
  }
  assert.equal((await ask(t, router, '/trajectories?format=jsonl')).status, 200);
});

test('each client sees and removes its own; an admin key is for all', async (t) => {
  const tenant = (key: string): string => hash('sha256', key, 'buffer').toString('hex', 0, 8);
  const router = await routerOver(
    t,
    [
      turnOf({ session: 'same', tenant: tenant('key-a') }),
      turnOf({ session: 'same', tenant: tenant('key-b') }),
      turnOf({ session: 'only-b', tenant: tenant('key-b') }),
    ],
    { apiKey: ['key-a', 'key-b'], adminApiKey: ['boss'] },
  );
  assert.equal((await ask(t, router, '/trajectories')).status, 401);
  assert.deepEqual(sessionsOf((await ask(t, router, '/trajectories', 'key-a')).json), ['same']);
  assert.deepEqual(sessionsOf((await ask(t, router, `/trajectories?tenant=${tenant('key-b')}`, 'key-a')).json), [
    'same',
  ]);
  assert.deepEqual(sessionsOf((await ask(t, router, '/trajectories', 'key-b')).json), ['same', 'only-b']);
  assert.deepEqual(sessionsOf((await ask(t, router, '/trajectories', 'boss')).json), ['same', 'same', 'only-b']);
  assert.deepEqual(sessionsOf((await ask(t, router, `/trajectories?tenant=${tenant('key-a')}`, 'boss')).json), [
    'same',
  ]);
  for (const target of ['/trajectories/only-b', '/trajectory?session=only-b', '/trajectories/only-b/metrics']) {
    assert.equal((await ask(t, router, target, 'key-a')).status, 404, target);
    assert.equal((await ask(t, router, target, 'key-b')).status, 200, target);
  }
  assert.equal((await ask(t, router, '/trajectories?format=jsonl&session=only-b', 'key-a')).text, '');
  assert.equal((await ask(t, router, '/trajectories/only-b', 'key-a', 'DELETE')).status, 404);
  assert.equal((await ask(t, router, '/trajectories/same', 'key-a', 'DELETE')).json['removed'], 1);
  assert.deepEqual(sessionsOf((await ask(t, router, '/trajectories', 'boss')).json), ['same', 'only-b']);
});

test('with --store-max-age-secs old sessions go by themselves, with their files', async (t) => {
  const dataDir = temporaryFolder(t);
  mkdirSync(join(dataDir, 'experts'));
  const experts = { file: 'experts/x', bytes: 8, dtype: null, shape: null };
  writeFileSync(join(dataDir, experts.file), Buffer.alloc(8));
  const store = new SqliteStore(dataDir);
  store.put([turnOf({ session: 'old', experts }), turnOf({ session: 'new', startedAtMs: Date.now() })]);
  store.close();
  const router = await startTestRouter(t, { dataDir, store: 'sqlite', storeMaxAgeSecs: 3_600 });
  await until('the old one is gone', async () => {
    const names = sessionsOf((await ask(t, router, '/trajectories')).json);
    assert.ok(names.includes('new'));
    return !names.includes('old');
  });
  await until('its file is gone, too', () => !existsSync(join(dataDir, experts.file)));
  await until('it is counted', async () => {
    const { text } = await ask(t, router, '/metrics');
    return text.includes('\nturnout_trajectory_expired_total 1\n');
  });
});

test('two routers share a store in Redis', async (t) => {
  const { url: store } = await startRespServer(t);
  const writer = (await import('../../src/recorder/thread/store/redis.ts')).RedisStore;
  const direct = await writer.open(store, true);
  await direct.put([turnOf({ session: 'a' })]);
  direct.close();
  for (const router of [await startTestRouter(t, { store }), await startTestRouter(t, { store })]) {
    assert.deepEqual(sessionsOf((await ask(t, router, '/trajectories')).json), ['a']);
  }
});

test('the metrics report what is in the store, and are absent without a store', async (t) => {
  const router = await routerOver(t, [turnOf(), turnOf()]);
  const { text } = await ask(t, router, '/metrics');
  assert.match(text, /^turnout_trajectory_turns 2$/m);
  assert.match(text, /^turnout_trajectory_dropped_total 0$/m);
  const without = await startTestRouter(t);
  assert.doesNotMatch((await ask(t, without, '/metrics')).text, /^turnout_trajectory_turns /m);
});

test('a store that can not be had stops the start, in words', async (t) => {
  await assert.rejects(
    startTestRouter(t, { store: 'sqlite' }),
    /trajectories can't be kept: --store sqlite needs --data-dir/,
  );
  await assert.rejects(startTestRouter(t, { store: 'ftp://x' }), /--store: is memory, sqlite or redis/);
});
