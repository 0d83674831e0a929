import { deepEqual, equal, match } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { type Engine, type EngineRequest, answer, startEngine } from '../harness/engine.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

const JSON_TYPE = ['content-type: application/json'];
/** More digits than a double has. */
const REPLY = '{"success":true,"seq_id":18446744073709551615}';

const postOf = (body: string): RequestInit => ({
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body,
});

interface Reply {
  readonly status: number;
  readonly text: string;
  readonly json: Record<string, never> & {
    readonly workers: Record<string, unknown>[];
    readonly results: Record<string, { status: number; url: string; body: unknown; latency_ms: number }>;
    readonly failed: { worker_id: string; url: string; error: string; status?: number }[];
  };
}

async function startScene(t: TestContext, options: RouterOptions = {}) {
  const bodies: string[] = [];
  const onRequest = async (asked: EngineRequest): Promise<void> => {
    bodies.push(`${asked.method} ${asked.target} ${(await asked.payload()).toString()}`);
    asked.answer(REPLY);
  };
  const start = (): Promise<Engine> => startEngine(t, { onRequest: (asked) => void onRequest(asked) });
  const engines = [await start(), await start(), await start()];
  const router = await startTestRouter(t, { workerUrls: engines.map(({ url }) => url), ...options });
  const ask = async (path: string, init: RequestInit = {}): Promise<Reply> => {
    const response = await fetch(router.url + path, init);
    const text = await response.text();
    return { status: response.status, text, json: JSON.parse(text) as Reply['json'] };
  };
  const { workers } = router.fleet;
  return { engines, router, bodies, ask, workers };
}

test('the list of engines: an engine with several ranks is one row', async (t) => {
  const { ask, router, workers } = await startScene(t);
  router.fleet.add('http://127.0.0.1:9@0');
  router.fleet.add('http://127.0.0.1:9@1');
  const { json } = await ask('/v1/rl/workers');
  deepEqual([json['protocol_version'], json['total']], [1, 4]);
  const row = json.workers.find(({ base_url }) => base_url === 'http://127.0.0.1:9')!;
  deepEqual([row['dp_ranks'], row['url'], row['weight_version']], [2, 'http://127.0.0.1:9@0', null]);
  const one = await ask(`/v1/rl/workers/${workers[0]!.id}`);
  deepEqual([one.json['url'], one.json['worker_type'], one.json['health']], [workers[0]!.url, 'regular', 'ready']);
  deepEqual((await ask('/v1/rl/workers/none')).json['error'], 'worker_not_found');
});

test('a request for one engine: the body, the query and the digits stay', async (t) => {
  const { ask, bodies, workers } = await startScene(t);
  const { id, url } = workers[1]!;
  const body = '{"model_path":"/ckpt/42","n":18446744073709551615}';
  const path = `/v1/rl/workers/${id}/engine/update_weights_from_disk?a=1&selector=x`;
  const { status, text, json } = await ask(path, postOf(body));
  equal(status, 200);
  deepEqual([json['worker_id'], json['url'], json['status']], [id, url, 200]);
  match(text, /"seq_id":18446744073709551615/);
  deepEqual(bodies, [`POST /update_weights_from_disk?a=1 ${body}`]);
});

test('a request for all engines, or for some, with a result for each', async (t) => {
  const { ask, bodies, engines, workers, router } = await startScene(t);
  const init = postOf('{"mode":"abort"}');
  const all = await ask(`/v1/rl/engine/pause_generation?selector=${encodeURIComponent('connection_mode=http')}`, init);
  equal(all.status, 200);
  deepEqual([all.json['total'], all.json['succeeded'], all.json.failed], [3, 3, []]);
  deepEqual(Object.keys(all.json.results).toSorted(), workers.map(({ id }) => id).toSorted());
  match(all.text, /18446744073709551615/);
  deepEqual(bodies.splice(0), Array(3).fill('POST /pause_generation {"mode":"abort"}'));

  const two = encodeURIComponent(`url in (${workers[0]!.url},${workers[2]!.url})`);
  engines[2]!.onRequest = (asked) => asked.connection.write(answer(500, '{"e":1}', JSON_TYPE));
  const some = await ask(`/v1/rl/engine/pause_generation?selector=${two}`, init);
  equal(some.status, 207);
  deepEqual([some.json['total'], some.json['succeeded']], [2, 1]);
  const [failed] = some.json.failed;
  deepEqual([failed!.url, failed!.error, failed!.status], [workers[2]!.url, 'upstream_error', 500]);
  equal(some.json.results[workers[2]!.id]!.status, 500);
  equal(bodies.length, 1, 'the third engine was not asked');

  engines[2]!.kill();
  await until('its connections are gone', () => engines[2]!.openSockets === 0);
  const gone = await ask('/v1/rl/engine/continue_generation?selector=connection_mode%3Dhttp', init);
  deepEqual([gone.status, gone.json.failed[0]!.error], [207, 'upstream_unreachable']);
  equal(gone.json.results[workers[2]!.id], undefined);
  equal(
    router.fleet.inFlight.every((count) => count === 0),
    true,
  );
});

test('wrong requests, and which keys may send them', async (t) => {
  const { ask } = await startScene(t, { apiKey: ['client'], adminApiKey: ['admin'] });
  const admin = { headers: { authorization: 'Bearer admin' } };
  equal((await ask('/v1/rl/workers')).status, 401);
  equal((await ask('/v1/rl/workers', { headers: { authorization: 'Bearer client' } })).status, 403);
  equal((await ask('/v1/rl/workers', admin)).status, 200);
  const errors = {
    '/v1/rl/engine/pause': 'selector_required',
    '/v1/rl/engine/pause?selector=engine%3D%3D': 'invalid_selector',
    '/v1/rl/engine/pause?selector=engine%3Dtrtllm': 'no_workers_match',
    '/v1/rl/engine/health?selector=connection_mode%3Dhttp': 'invalid_engine_path',
    '/v1/rl/engine/a/b/c/d/e?selector=engine%3Dunknown': 'invalid_engine_path',
    '/v1/rl/engine/a%2F..%2Fhealth?selector=connection_mode%3Dhttp': 'invalid_engine_path',
    '/v1/rl/engine/%2Fhealth?selector=connection_mode%3Dhttp': 'invalid_engine_path',
  };
  for (const [path, error] of Object.entries(errors)) {
    const { status, json } = await ask(path, admin);
    deepEqual([status, json['error']], [400, error], path);
  }
  for (const path of ['v1/completions', 'v1%2Fcompletions', 'a%2F..%2Fv1%2Fcompletions', 'v1%2F%2Fcompletions']) {
    const init = { ...admin, method: 'POST' };
    const { status, json } = await ask(`/v1/rl/engine/${path}?selector=health%3Dready`, init);
    deepEqual([status, json['error']], [400, 'invalid_engine_path'], path);
  }
});
