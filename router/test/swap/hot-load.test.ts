import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { holdLoads, startSims } from '../harness/swap-scene.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

const PATH = '/hot_load/v1/models/hot_load';
const names = {
  model: 'accounts/acct/models/sim',
  async: 'accounts/acct/deployments/a',
  sync: 'accounts/acct/deployments/s',
};

interface Replica {
  readonly readiness: boolean;
  readonly current_snapshot_identity: string | null;
  readonly loading_state: { readonly stage: string; readonly target_snapshot_identity?: string };
}

/** A client of the hot-load API. */
class HotLoader {
  readonly #url: string;
  readonly #headers: Record<string, string>;

  constructor(url: string, headers: Record<string, string> = {}) {
    this.#url = url;
    this.#headers = headers;
  }

  async call(method: string, path: string, body?: unknown) {
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    const response = await fetch(this.#url + path, {
      method,
      headers: { 'content-type': 'application/json', ...this.#headers },
      ...(body === undefined ? {} : { body: text }),
    });
    return {
      status: response.status,
      headers: response.headers,
      json: (await response.json()) as Record<string, unknown>,
    };
  }

  signal(body: unknown) {
    return this.call('POST', PATH, body);
  }

  async replicas(): Promise<Replica[]> {
    const { status, json } = await this.call('GET', PATH);
    equal(status, 200);
    return json['replicas'] as Replica[];
  }

  async untilReady(identity: string): Promise<void> {
    await until(`${identity} is ready`, async () => {
      const [first] = await this.replicas();
      return first!.readiness && first!.current_snapshot_identity === identity;
    });
  }

  async untilFailed(identity: string): Promise<void> {
    await until(`${identity} has failed`, async () => {
      const { stage, target_snapshot_identity: target } = (await this.replicas())[0]!.loading_state;
      return stage === 'error' && target === identity;
    });
  }
}

async function start(t: TestContext, options: RouterOptions = {}) {
  const engines = await startSims(t, ['vllm', 'sglang']);
  const workerUrls = engines.map(({ url }) => url);
  const router = await startTestRouter(t, { workerUrls, swapSnapshots: '/snapshots/{identity}', ...options });
  const client = new HotLoader(router.url);
  await until('all engines serve', async () => (await client.replicas()).every(({ readiness }) => readiness));
  return { engines, router, client };
}

const error = (message: string, code = 'invalid_request_error') => ({ error: { message, code } });

test('a signal is answered at once, and the status leads to ready', async (t) => {
  const { client, engines } = await start(t);
  for (const replica of await client.replicas()) {
    deepEqual(replica, {
      readiness: true,
      current_snapshot_identity: 'base',
      loading_state: { stage: 'done' },
      loaded_adapters: [],
    });
  }
  const signalled = await client.signal({ identity: 'v1', reset_prompt_cache: true });
  deepEqual([signalled.status, signalled.json], [200, { identity: 'v1' }]);
  await client.untilReady('v1');
  const replicas = await client.replicas();
  equal(replicas.length, 2);
  for (const { readiness, current_snapshot_identity: current, loading_state: loading } of replicas)
    deepEqual([readiness, current, loading], [true, 'v1', { stage: 'done', target_snapshot_identity: 'v1' }]);
  for (const engine of engines) equal(engine.core.modelPath, '/snapshots/v1');
});

test('the first replica is the least ready one', async (t) => {
  const [fast, slow] = await startSims(t, ['vllm', 'vllm']);
  const workerUrls = [fast!.url, slow!.url];
  const router = await startTestRouter(t, { workerUrls, swapSnapshots: '/snapshots/{identity}' });
  const client = new HotLoader(router.url);
  await until('all engines serve', async () => (await client.replicas()).every(({ readiness }) => readiness));
  const goOn = holdLoads(t, slow!);
  await client.signal({ identity: 'v1' });
  let seen: Replica[] = [];
  await until('one is ready', async () =>
    (seen = await client.replicas()).some((each) => each.current_snapshot_identity === 'v1' && each.readiness),
  );
  deepEqual(
    seen.map(({ readiness }) => readiness),
    [false, true],
  );
  goOn();
  await client.untilReady('v1');
});

test('an engine whose turn has not come has not failed the swap, whatever became of the one before', async (t) => {
  const engines = await startSims(t, ['vllm', 'vllm']);
  const workerUrls = engines.map(({ url }) => url);
  const router = await startTestRouter(t, { workerUrls, swapSnapshots: '/snapshots/{identity}', swapConcurrency: 1 });
  const client = new HotLoader(router.url);
  await until('all engines serve', async () => (await client.replicas()).every(({ readiness }) => readiness));
  engines[1]!.core.faults.add('/collective_rpc', 'fail_before');
  await client.signal({ identity: 'v1' });
  await client.untilFailed('v1');
  const goOn = holdLoads(t, engines[0]!);
  await client.signal({ identity: 'v2' });
  const seen = new Set<string>();
  const look = async (): Promise<Replica[]> => {
    const replicas = await client.replicas();
    for (const { loading_state: loading } of replicas)
      seen.add(`${loading.stage} ${loading.target_snapshot_identity ?? ''}`);
    return replicas;
  };
  await until('one loads', async () => (await look()).some(({ loading_state: { stage } }) => stage === 'load'));
  goOn();
  await until('all engines have v2', async () => {
    const replicas = await look();
    return replicas.every(({ readiness, current_snapshot_identity: current }) => readiness && current === 'v2');
  });
  ok(seen.has('pending v2') && !seen.has('error v2'), [...seen].join(', '));
});

for (const [what, loads] of [
  ['every engine', ['/collective_rpc', '/update_weights_from_disk']],
  ['one engine of two', ['/collective_rpc']],
] as const) {
  test(`a signal back to the snapshot of before is ready after one that ${what} could not load`, async (t) => {
    const { engines, client } = await start(t);
    await client.signal({ identity: 'v1' });
    await client.untilReady('v1');
    loads.forEach((path, i) => engines[i]!.core.faults.add(path, 'fail_before'));
    await client.signal({ identity: 'v2' });
    await client.untilFailed('v2');
    await client.signal({ identity: 'v1' });
    await client.untilReady('v1');
    for (const { loading_state: loading } of await client.replicas()) equal(loading.stage, 'done');
  });
}

test('a signal back to the snapshot of before is ready after a swap that was undone', async (t) => {
  const { client } = await start(t);
  await client.signal({ identity: 'v1' });
  await client.untilReady('v1');
  equal((await client.call('POST', '/swap/begin', { identity: 'v2' })).status, 200);
  equal((await client.call('DELETE', '/swap')).status, 202);
  await client.untilFailed('v2');
  await client.signal({ identity: 'v1' });
  await client.untilReady('v1');
  for (const { loading_state: loading } of await client.replicas()) equal(loading.stage, 'done');
});

test('what a signal may not have is refused in the form that clients match', async (t) => {
  const { client } = await start(t);
  for (const [body, message] of [
    [{ identity: 'v1', path: '/x' }, "Extra inputs are not permitted, field: 'path'"],
    [{}, "Field required, field: 'identity'"],
    ['{', /^The body is not JSON/],
    [{ identity: '../x' }, /^identity: must be made of/],
  ] as const) {
    const { status, json } = await client.signal(body);
    equal(status, 400);
    if (typeof message === 'string') deepEqual(json, error(message));
    else match((json['error'] as { message: string }).message, message);
  }
  const delta = { previous_snapshot_identity: 'base', compression_format: 'arc_v2', checksum_format: 'alder32' };
  const refused = await client.signal({ identity: 'v1', incremental_snapshot_metadata: delta });
  equal(refused.status, 501);
  match((refused.json['error'] as { message: string }).message, /--swap-delta-hook/);
  equal((await client.replicas())[0]!.current_snapshot_identity, 'base');
});

test('headers choose the deployment; unknown ones are 404', async (t) => {
  const [a, s] = [await startSims(t, ['vllm']), await startSims(t, ['sglang'])];
  const deployment = { model: names.model, snapshots: '/snapshots/{identity}' };
  const router = await startTestRouter(t, {
    workerUrls: [...a, ...s].map(({ url }) => url),
    deployments: [
      { ...deployment, deployment: names.async, workers: [a[0]!.url] },
      { ...deployment, deployment: names.sync, transition: 'sync', workers: [s[0]!.url] },
    ],
  });
  const of = (name: string, model = names.model) =>
    new HotLoader(router.url, { 'fireworks-deployment': name, 'fireworks-model': model });
  const [async, sync] = [of(names.async), of(names.sync)];
  await until('all engines serve', async () =>
    [...(await async.replicas()), ...(await sync.replicas())].every(({ readiness }) => readiness),
  );
  equal((await sync.signal({ identity: 'v1' })).status, 200);
  await sync.untilReady('v1');
  equal((await async.replicas())[0]!.current_snapshot_identity, 'base');
  for (const wrong of [of('accounts/acct/deployments/x'), of(names.async, 'accounts/acct/models/x')]) {
    for (const { status, json } of [await wrong.call('GET', PATH), await wrong.signal({ identity: 'v2' })]) {
      equal(status, 404);
      equal((json['error'] as { code: string }).code, 'not_found');
    }
  }
  const other = await new HotLoader(router.url, { 'fireworks-model': 'accounts/acct/models/x' }).call('GET', PATH);
  match(JSON.stringify(other.json), /There is no deployment with the model accounts\/acct\/models\/x\. Deployments:/);
  const none = await new HotLoader(router.url).call('GET', PATH);
  deepEqual(
    [none.status, none.json],
    [400, error('The header fireworks-deployment is required: this router has several deployments.')],
  );
  const listed = await async.call('GET', '/v1/accounts?pageSize=2');
  deepEqual(listed.json['accounts'], [{ name: 'accounts/acct' }]);
  const { json } = await async.call('GET', `/v1/${names.sync}`);
  deepEqual(
    [json['name'], json['state'], json['baseModel'], json['hotLoadTransitionType'], json['replicaCount']],
    [names.sync, 'READY', names.model, 'SYNC', 1],
  );
  equal((await async.call('GET', '/v1/accounts/acct/deployments/x')).status, 404);
  equal((await async.call('POST', '/v1/accounts/acct/deployments?deploymentId=a', {})).status, 409);
  equal((await async.call('POST', '/v1/accounts/acct/deployments?deploymentId=x', {})).status, 501);
  equal((await async.call('POST', '/v1/accounts/acct/deployments', {})).status, 400);
  const all = await async.call('GET', '/v1/accounts/acct/deployments');
  deepEqual(
    (all.json['deployments'] as { name: string }[]).map(({ name }) => name),
    [names.async, names.sync],
  );
});

test('a request that names a deployment goes to its workers, by header or body; an unknown one is 404', async (t) => {
  const [a, s] = [await startSims(t, ['vllm'], { timeScale: 0 }), await startSims(t, ['sglang'], { timeScale: 0 })];
  const snapshots = '/snapshots/{identity}';
  const router = await startTestRouter(t, {
    workerUrls: [...a, ...s].map(({ url }) => url),
    policy: 'round_robin',
    workerHeader: true,
    deployments: [
      { deployment: names.async, model: names.model, snapshots, workers: [a[0]!.url] },
      { deployment: names.sync, snapshots, workers: [s[0]!.url] },
    ],
  });
  await until('all workers serve', () => router.fleet.eligible.length === 2);
  const ask = async (model: string, headers: Record<string, string> = {}, path = '/inference/v1/completions') => {
    const body = JSON.stringify({ model, prompt: 'a', max_tokens: 1 });
    const response = await fetch(router.url + path, { method: 'POST', headers, body });
    await response.arrayBuffer();
    return response.status === 200 ? response.headers.get('x-turnout-worker') : response.status;
  };
  for (let i = 0; i < 3; i++) {
    equal(await ask(names.async), a[0]!.url);
    equal(await ask(names.sync, {}, '/v1/completions'), s[0]!.url);
    equal(await ask(`${names.model}#${names.sync}`), s[0]!.url);
    equal(await ask(names.model, { 'fireworks-deployment': names.sync }), s[0]!.url);
    equal(await ask('sim', { 'fireworks-deployment': names.async }), a[0]!.url);
  }
  equal(await ask('accounts/acct/deployments/x'), 404);
  equal(await ask('sim', { 'fireworks-deployment': 'accounts/acct/deployments/x' }), 404);
  equal(new Set([await ask('sim'), await ask('sim')]).size, 2);
});

test('a client changes the transition and the trainer of a deployment, and nothing else', async (t) => {
  const { client, engines } = await start(t);
  const path = '/v1/accounts/any/deployments/dep';
  const patch = (body: object, mask = '') => client.call('PATCH', `${path}${mask}`, body);
  equal((await client.call('GET', path)).json['hotLoadTransitionType'], 'ASYNC');
  const job = 'accounts/any/rlorTrainerJobs/j';
  const changed = await patch(
    { hotLoadTransitionType: 'SYNC', hotLoadTrainerJob: job, description: 'x' },
    '?updateMask=hot_load_transition_type,hot_load_trainer_job',
  );
  deepEqual(
    ['hotLoadTransitionType', 'hotLoadTrainerJob', 'description'].map((name) => changed.json[name]),
    ['SYNC', job, undefined],
  );
  equal((await patch({ maxReplicaCount: 0 })).status, 501);
  equal((await patch({ hotLoadTransitionType: 'FOO' })).status, 400);
  equal((await client.call('DELETE', path)).status, 501);
  equal((await client.call('GET', path)).json['hotLoadTrainerJob'], job);
  await client.signal({ identity: 'v1' });
  await client.untilReady('v1');
  const swaps = (await client.call('GET', '/swap')).json as { deployments: { swaps: { transition: string }[] }[] };
  equal(swaps.deployments[0]!.swaps[0]!.transition, 'sync');
  const unnamed = await client.call('POST', '/swap', { identity: 'v2', deployment: 'x' });
  deepEqual([unnamed.status, /leave it out/.test(JSON.stringify(unnamed.json))], [400, true]);
  equal(engines.length, 2);
});

test('a hint is accepted and changes nothing', async (t) => {
  const { client } = await start(t);
  equal((await client.call('POST', `${PATH}/hint`, { file: 'model-00001.safetensors' })).status, 200);
  equal((await client.replicas())[0]!.current_snapshot_identity, 'base');
});

test('hot load needs an admin key, by either header of the SDK', async (t) => {
  const { engines } = await start(t);
  const router = await startTestRouter(t, {
    workerUrls: engines.map(({ url }) => url),
    swapSnapshots: '/snapshots/{identity}',
    apiKey: ['data'],
    adminApiKey: ['admin'],
  });
  const denied = await new HotLoader(router.url).call('GET', PATH);
  equal(typeof (denied.json['error'] as { message: unknown }).message, 'string');
  const both = (key: string) => new HotLoader(router.url, { authorization: `Bearer ${key}`, 'x-api-key': key });
  for (const path of [PATH, '/v1/accounts?pageSize=2', '/v1/accounts/a/deployments/d']) {
    equal((await new HotLoader(router.url).call('GET', path)).status, 401, path);
    equal((await both('data').call('GET', path)).status, 403, path);
    equal((await both('admin').call('GET', path)).status, 200, path);
    equal((await new HotLoader(router.url, { 'x-api-key': 'admin' }).call('GET', path)).status, 200, path);
  }
});

/** Notes its arguments, and makes the snapshot unless it is told to fail. */
const HOOK = `#!/bin/sh
# Before the note, which a test answers with a signal.
case "$1" in
busy*) trap 'sleep 0.3; echo "$1 has ended" >> "$0.log"; exit 1' TERM;;
esac
echo "$1 $2 $3 $TURNOUT_DELTA_COMPRESSION $TURNOUT_DELTA_SOURCE_URL" >> "$0.log"
echo "no space on the device" >&2
case "$1" in
bad*) exit 3;;
busy*) while :; do sleep 0.05; done;;
nested*) sh -c 'sleep 30; echo "made late" >> "$0.log"' "$0";;
slow*) while [ ! -e "$0.go" ]; do sleep 0.05; done;;
esac
`;

async function startWithHook(t: TestContext, options: RouterOptions = {}) {
  const program = join(temporaryFolder(t), 'rebuild.sh');
  writeFileSync(program, HOOK);
  chmodSync(program, 0o755);
  const scene = await start(t, { swapDeltaHook: [program], ...options });
  const delta = (identity: string, previous: string) => ({
    identity,
    incremental_snapshot_metadata: {
      previous_snapshot_identity: previous,
      compression_format: 'arc_v2',
      checksum_format: 'alder32',
    },
  });
  const log = (): string => (existsSync(`${program}.log`) ? readFileSync(`${program}.log`, 'utf8') : '');
  return { ...scene, program, delta, log };
}

test('with --swap-delta-hook a delta is made complete, then loaded', async (t) => {
  const { client, delta, log, engines } = await startWithHook(t);
  const early = await client.signal(delta('v2', 'v1'));
  equal(early.status, 409);
  match((early.json['error'] as { message: string }).message, /no snapshot v1: send a complete snapshot first/);
  await client.signal({ identity: 'v1' });
  await client.untilReady('v1');
  deepEqual((await client.signal(delta('v2', 'v1'))).json, { identity: 'v2' });
  await client.untilReady('v2');
  equal(log(), 'v2 v1 /snapshots/v2 arc_v2 \n');
  for (const engine of engines) equal(engine.core.modelPath, '/snapshots/v2');
});

test('a delta that cannot be made is the error of its swap, and the engines keep their weights', async (t) => {
  const { client, delta } = await startWithHook(t);
  await client.signal({ identity: 'v1' });
  await client.untilReady('v1');
  equal((await client.signal(delta('bad', 'v1'))).status, 200);
  await client.untilFailed('bad');
  for (const { readiness, current_snapshot_identity: current } of await client.replicas())
    deepEqual([readiness, current], [true, 'v1']);
  await client.signal({ identity: 'v2' });
  await client.untilReady('v2');
  deepEqual((await client.replicas())[0]!.loading_state, { stage: 'done', target_snapshot_identity: 'v2' });
});

test('a newer signal supersedes a delta that is being made', async (t) => {
  const { client, delta, log } = await startWithHook(t);
  await client.signal({ identity: 'v1' });
  await client.untilReady('v1');
  await client.signal(delta('slow', 'v1'));
  await until('the command runs', () => log().startsWith('slow'));
  deepEqual((await client.replicas())[0]!.loading_state, { stage: 'build', target_snapshot_identity: 'slow' });
  await client.signal({ identity: 'v2' });
  await client.untilReady('v2');
});

for (const [what, method, path, body] of [
  ['POST /swap', 'POST', '/swap', { identity: 'v2' }],
  ["a trainer's swap", 'POST', '/swap/begin', { identity: 'v2' }],
  ['DELETE /swap', 'DELETE', '/swap', undefined],
] as const) {
  test(`${what} ends a delta that is being made`, async (t) => {
    const { client, delta, log } = await startWithHook(t);
    await client.signal({ identity: 'v1' });
    await client.untilReady('v1');
    await client.signal(delta('busy', 'v1'));
    await until('the command runs', () => log().startsWith('busy'));
    const { status } = await client.call(method, path, body);
    ok(status === 200 || status === 202, `${status}`);
    await until('it has ended', () => log().includes('busy has ended'));
    for (const { loading_state: loading } of await client.replicas()) ok(loading.target_snapshot_identity !== 'busy');
  });
}

test('a queued signal that is older than a delta does not end it', async (t) => {
  const { client, delta, log, program } = await startWithHook(t);
  await client.signal({ identity: 'v1' });
  await client.untilReady('v1');
  equal((await client.call('POST', '/swap/begin', { identity: 'v2' })).status, 200);
  await client.signal({ identity: 'v3' });
  await client.signal(delta('slow', 'v1'));
  await until('the command runs', () => log().startsWith('slow'));
  equal((await client.call('POST', '/swap/end')).status, 200);
  await until('v3 is loaded', async () =>
    (await client.replicas()).every((each) => each.current_snapshot_identity === 'v3'),
  );
  writeFileSync(`${program}.go`, '');
  await client.untilReady('slow');
});

test('a delta that is being made ends with the router', async (t) => {
  const { client, delta, log, router } = await startWithHook(t);
  await client.signal({ identity: 'v1' });
  await client.untilReady('v1');
  await client.signal(delta('busy', 'v1'));
  await until('the command runs', () => log().startsWith('busy'));
  await router.close();
  await until('it has ended', () => log().includes('busy has ended'));
});

test('a delta that is being made when the router ends is an error at the next one, until it is signalled again', async (t) => {
  const dataDir = temporaryFolder(t);
  const { client, delta, log, router, engines, program } = await startWithHook(t, { dataDir });
  await client.signal({ identity: 'v1' });
  await client.untilReady('v1');
  const startNext = async (): Promise<[typeof router, HotLoader]> => {
    const next = await startTestRouter(t, {
      workerUrls: engines.map(({ url }) => url),
      swapSnapshots: '/snapshots/{identity}',
      swapDeltaHook: [program],
      dataDir,
    });
    return [next, new HotLoader(next.url)];
  };
  await client.signal(delta('slow', 'v1'));
  await until('the command runs', () => log().startsWith('slow'));
  await router.close();
  const [second, later] = await startNext();
  await later.untilFailed('slow');
  await until('the engines serve', async () => (await later.replicas()).every(({ readiness }) => readiness));
  writeFileSync(`${program}.go`, '');
  equal((await later.signal(delta('slow', 'v1'))).status, 200);
  await later.untilReady('slow');
  equal(log(), 'slow v1 /snapshots/slow arc_v2 \n'.repeat(2));
  await second.close();
  const [, last] = await startNext();
  await last.untilReady('slow');
  equal((await last.replicas())[0]!.loading_state.stage, 'done');
});

test('what a superseded command has started ends with it', async (t) => {
  const { client, delta, log } = await startWithHook(t);
  await client.signal({ identity: 'v1' });
  await client.untilReady('v1');
  await client.signal(delta('nested', 'v1'));
  await until('the command runs', () => log().startsWith('nested'));
  const beganMs = performance.now();
  await client.signal(delta('v2', 'v1'));
  await client.untilReady('v2');
  ok(performance.now() - beganMs < 20_000);
  match(log(), /^nested .*\nv2 .*\n$/);
});

test('a repeated delta runs its command once', async (t) => {
  const { client, delta, log, program, engines } = await startWithHook(t);
  await client.signal({ identity: 'v1' });
  await client.untilReady('v1');
  for (let i = 0; i < 2; i++) equal((await client.signal(delta('slow', 'v1'))).status, 200);
  await until('the command runs', () => log().startsWith('slow'));
  equal((await client.signal(delta('slow', 'v1'))).status, 200);
  for (const { core } of engines) core.faults.calls.length = 0;
  writeFileSync(`${program}.go`, '');
  await until('the engines load', () => engines.some(({ core }) => core.faults.calls.length > 0));
  deepEqual((await client.signal(delta('slow', 'v1'))).json, { identity: 'slow' });
  await client.untilReady('slow');
  equal(log(), 'slow v1 /snapshots/slow arc_v2 \n');
});

test('a command runs when the one that it supersedes has ended', async (t) => {
  const { client, delta, log } = await startWithHook(t);
  await client.signal({ identity: 'v1' });
  await client.untilReady('v1');
  await client.signal(delta('busy', 'v1'));
  await until('the command runs', () => log().startsWith('busy'));
  await client.signal(delta('v2', 'v1'));
  await client.untilReady('v2');
  deepEqual(
    log()
      .trim()
      .split('\n')
      .map((line) => line.split(' /')[0]),
    ['busy v1', 'busy has ended', 'v2 v1'],
  );
});

test('the ledger can be read, the latest snapshot first', async (t) => {
  const { client } = await startWithHook(t);
  const read = async () => {
    const answer = await client.call('GET', '/v1/accounts/any/deployments/dep/ledger');
    return answer.json as unknown as { current_snapshot_identity: string; snapshots: { identity: string }[] };
  };
  deepEqual((await read()).snapshots, []);
  await client.signal({ identity: 'v1' });
  await client.untilReady('v1');
  await client.signal({ identity: 'v2' });
  await client.untilReady('v2');
  const { current_snapshot_identity: current, snapshots } = await read();
  deepEqual([current, snapshots.map(({ identity }) => identity)], ['v2', ['v2', 'v1']]);
});

test('after the ledger is reset only a complete snapshot is accepted', async (t) => {
  const { client, delta } = await startWithHook(t);
  await client.signal({ identity: 'v1' });
  await client.untilReady('v1');
  equal((await client.call('DELETE', '/v1/accounts/any/deployments/dep/ledger')).status, 200);
  equal((await client.signal(delta('v2', 'v1'))).status, 409);
  equal((await client.signal({ identity: 'v3' })).status, 200);
  await client.untilReady('v3');
  ok((await client.signal(delta('v4', 'v3'))).status === 200);
  await client.untilReady('v4');
});

test('engines that were not known when the signal came load its snapshot, each for itself', async (t) => {
  const slow = await startSims(t, ['vllm'], { timeScale: 1, weightLoadMs: 600 });
  // It is known while the other one loads.
  const late = await startSims(t, ['vllm'], { healthDelayMs: 200 });
  const workerUrls = [...slow, ...late].map(({ url }) => url);
  const router = await startTestRouter(t, { workerUrls, swapSnapshots: '/snapshots/{identity}' });
  const client = new HotLoader(router.url);
  equal((await client.signal({ identity: 'v1' })).status, 200);
  await client.untilReady('v1');
  for (const { current_snapshot_identity: current } of await client.replicas()) equal(current, 'v1');
  for (const engine of [...slow, ...late]) equal(engine.core.modelPath, '/snapshots/v1');
});

/** A router whose snapshots are directories; those of these names have a LoRA adapter. */
async function startWithAdapters(
  t: TestContext,
  kind: 'vllm' | 'sglang',
  adapters: readonly string[],
  sim: Partial<SimOptions> = {},
) {
  const folder = temporaryFolder(t);
  for (const name of adapters) {
    mkdirSync(join(folder, name));
    writeFileSync(join(folder, name, 'adapter_config.json'), '{}');
  }
  const [engine] = await startSims(t, [kind], { meanOutputTokens: 0, ...sim });
  const router = await startTestRouter(t, {
    workerUrls: [engine!.url],
    swapSnapshots: join(folder, '{identity}'),
    // What an engine is asked depends on its kind.
    disableHealthCheck: false,
  });
  const client = new HotLoader(router.url);
  await until('the engine serves', async () => (await client.replicas()).every(({ readiness }) => readiness));
  const sample = (tokens: number) =>
    client.call('POST', '/inference/v1/completions', { model: names.model, prompt: 'a', max_tokens: tokens });
  const adaptersOf = async () =>
    ((await client.replicas())[0] as Replica & { loaded_adapters: unknown }).loaded_adapters;
  return { folder, core: engine!.core, client, sample, adaptersOf };
}

for (const kind of ['vllm', 'sglang'] as const) {
  test(`${kind}: a snapshot that is a LoRA adapter is loaded beside the weights, under one name`, async (t) => {
    const { folder, core, client, sample, adaptersOf } = await startWithAdapters(t, kind, ['lora-1', 'lora-2']);
    const load = async (identity: string) => {
      await client.signal({ identity });
      await client.untilReady(identity);
    };
    const text = async () => ((await sample(8)).json['choices'] as { text: string }[])[0]!.text;
    const texts = [await text()];
    for (const identity of ['lora-1', 'lora-2']) {
      await load(identity);
      deepEqual(await adaptersOf(), [{ identity, status: 'loaded' }]);
      deepEqual([core.modelNames.get('hot-load'), core.modelPath], [join(folder, identity), 'sim']);
      texts.push(await text());
    }
    equal(new Set(texts).size, 3, 'each adapter samples other tokens');
    await load('full');
    deepEqual(await adaptersOf(), []);
    deepEqual([core.modelNames.has('hot-load'), core.modelPath], [false, join(folder, 'full')]);
    equal((await sample(1)).status, 200);
  });
}

test('SGLang unloads an adapter only when no request uses it: requests in flight finish first, new ones wait', async (t) => {
  // A request can't end before it is released.
  const script = () => ({ ids: [], holdAt: 1_000 });
  const { core, client, sample } = await startWithAdapters(t, 'sglang', ['lora-1', 'lora-2'], { script });
  await client.signal({ identity: 'lora-1' });
  await client.untilReady('lora-1');
  const long = sample(2_000);
  await until('it runs', () => core.running === 1);
  await client.signal({ identity: 'lora-2' });
  await until('the engine drains', async () => (await client.replicas())[0]!.loading_state.stage === 'drain');
  const held = sample(1);
  equal(core.paused, false);
  core.release(() => true);
  equal(((await long).json['usage'] as { completion_tokens: number }).completion_tokens, 2_000);
  equal((await held).status, 200);
  await client.untilReady('lora-2');
});

test('after the ledger was cleared the engines still have their snapshot, and a delta needs it to be signalled again', async (t) => {
  const { client, router, delta } = await startWithHook(t);
  const ledger = '/v1/accounts/any/deployments/dep/ledger';
  await client.signal({ identity: 'v1' });
  await client.untilReady('v1');
  equal((await client.call('DELETE', ledger)).status, 200);
  equal((await client.call('GET', ledger)).json['current_snapshot_identity'], 'v1');
  const { deployments } = (await (await fetch(`${router.url}/swap`)).json()) as { deployments: { snapshot: string }[] };
  equal(deployments[0]!.snapshot, 'v1');
  equal((await client.signal(delta('v2', 'v1'))).status, 409);
  const ask = async (least: string): Promise<number> => {
    const headers = { 'content-type': 'application/json', 'x-turnout-min-snapshot': least };
    const body = JSON.stringify({ model: 'sim', prompt: 'go on', max_tokens: 2 });
    return (await fetch(`${router.url}/v1/completions`, { method: 'POST', headers, body })).status;
  };
  await client.signal({ identity: 'v3' });
  await client.untilReady('v3');
  deepEqual([await ask('v1'), await ask('v2')], [200, 409]);
  await client.signal({ identity: 'v1' });
  await client.untilReady('v1');
  equal((await client.call('DELETE', ledger)).status, 200);
  await client.signal({ identity: 'v1' });
  await until('it is in the ledger', async () => (await client.signal(delta('v2', 'v1'))).status === 200);
  await client.untilReady('v2');
});
