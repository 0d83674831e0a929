import assert from 'node:assert/strict';
import { test } from 'node:test';
import { holdLoads } from '../harness/swap-scene.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';
import { eventsOf, startSwapScene } from './swap-scene.ts';

const body = { prompt: 'a', max_tokens: 2 };
const min = (identity: string) => ({ 'x-turnout-min-snapshot': identity });

test('a request that wants a later snapshot gets 409, or waits for the swap that brings it', async (t) => {
  const { post, swap, engines, router } = await startSwapScene(t, ['vllm', 'sglang'], {
    timeScale: 1,
    weightLoadMs: 50,
  });
  const ask = async (identity: string): Promise<string> => {
    const response = await post('/v1/completions', body, min(identity));
    await response.body!.cancel();
    return `${response.status} ${response.headers.get('x-turnout-error') ?? response.headers.get('x-turnout-snapshot')}`;
  };
  assert.equal(await ask('base'), '200 base');
  assert.equal(await ask('v1'), '409 snapshot_too_old');
  assert.equal(await ask('a b'), '400 bad_request');
  // The first request below comes while the swap runs.
  const swapped = swap('v1');
  const paused = new Promise<void>((resolve) => {
    const look = (): void => (engines.every(({ core }) => core.paused) ? resolve() : void setImmediate(look));
    look();
  });
  await paused;
  assert.equal(await ask('v1'), '200 v1');
  await swapped;
  assert.equal(await ask('base'), '200 v1');
  assert.equal(router.pipeline.inFlight.size, 0);
});

test('a swap that no engine could load is no snapshot that a session lags behind', async (t) => {
  const { post, swap, engines, router } = await startSwapScene(t, ['sglang'], {}, { maxWeightStaleness: 1 });
  const turn = async (): Promise<number> => {
    const response = await post('/v1/completions', body, { 'x-session-id': 'long' });
    await response.body!.cancel();
    return response.status;
  };
  await swap('v1');
  assert.equal(await turn(), 200);
  for (const identity of ['v2', 'v3']) {
    engines[0]!.core.faults.add('/update_weights_from_disk', 'fail_before');
    await post('/swap', { identity });
    const ended = async (): Promise<boolean> =>
      (await (await fetch(`${router.url}/swap`)).text()).includes('"running":null');
    await until('the swap is over', ended);
  }
  await swap('v4');
  assert.equal(await turn(), 200, 'one snapshot since its begin');
  await swap('v5');
  assert.equal(await turn(), 409);
});

test('it waits for a swap that has not come to its worker, or is queued, and no longer when that is superseded', async (t) => {
  const slow = { timeScale: 1, weightLoadMs: 400 };
  // Its ledger is written before an engine is paused.
  const { post, router, engines } = await startSwapScene(t, ['sglang'], slow, { dataDir: temporaryFolder(t) });
  const ask = async (identity: string): Promise<string> => {
    const response = await post('/v1/completions', body, min(identity));
    await response.body!.cancel();
    return `${response.status} ${response.headers.get('x-turnout-error') ?? response.headers.get('x-turnout-snapshot')}`;
  };
  assert.equal((await post('/swap', { identity: 'v1' })).status, 202);
  assert.equal(await ask('v1'), '200 v1');
  const goOn = holdLoads(t, ...engines);
  await post('/swap', { identity: 'v2' });
  await post('/swap', { identity: 'v3' });
  const waits = () => [...router.pipeline.inFlight].some(({ waiting }) => waiting !== null);
  const superseded = ask('v3');
  await until('it waits', waits);
  await post('/swap', { identity: 'v4' });
  assert.equal(await superseded, '409 snapshot_too_old');
  const queued = ask('v4');
  await until('it waits', waits);
  goOn();
  assert.equal(await queued, '200 v4');
});

test('it waits no longer when a queued swap is undone', async (t) => {
  const { post, router } = await startSwapScene(t, ['sglang']);
  // The swap waits until the trainer resumes the engine.
  assert.equal((await post('/pause_generation', {})).status, 200);
  await post('/swap', { identity: 'v1' });
  const asked = post('/v1/completions', body, min('v1'));
  await until('it waits', () => [...router.pipeline.inFlight].some(({ waiting }) => waiting !== null));
  assert.equal((await fetch(`${router.url}/swap`, { method: 'DELETE' })).status, 202);
  assert.equal((await asked).headers.get('x-turnout-error'), 'snapshot_too_old');
});

test('a session that began too many snapshots ago gets 409, and its lag is a metric', async (t) => {
  const { post, swap, router } = await startSwapScene(t, ['vllm'], {}, { maxWeightStaleness: 1 });
  const turn = async (session: string): Promise<string> => {
    const response = await post('/v1/completions', body, { 'x-session-id': session });
    await response.body!.cancel();
    return `${response.status} ${response.headers.get('x-turnout-error') ?? ''}`;
  };
  assert.equal(await turn('s'), '200 ');
  for (const session of ['finished', 'deleted']) assert.equal(await turn(session), '200 ');
  await swap('v1');
  assert.equal(await turn('s'), '200 ');
  await post('/sessions/finished/finish', {});
  await fetch(`${router.url}/sessions/deleted`, { method: 'DELETE' });
  await swap('v2');
  for (const session of ['finished', 'deleted']) assert.equal(await turn(session), '200 ');
  assert.equal(await turn('s'), '409 session_too_stale');
  assert.equal(await turn('other'), '200 ');
  const metrics = await (await fetch(`${router.url}/metrics`)).text();
  const buckets = [...metrics.matchAll(/^turnout_session_snapshot_lag_bucket\{le="([012])"\} (\d+)$/gm)];
  assert.deepEqual(
    buckets.map(([, lag, count]) => `${lag}: ${count}`),
    ['0: 6', '1: 7', '2: 8'],
  );
  assert.match(metrics, /turnout_errors_total\{code="session_too_stale"\} 1/);
});

test('--abort-stale ends a stream at the swap that makes it too old; its engine stops', async (t) => {
  let held: () => void = () => {};
  const isHeld = new Promise<void>((resolve) => (held = resolve));
  const script = () => ({ ids: [400, 401], holdAt: 2, onHeld: held });
  const options = { maxWeightStaleness: 0, abortStale: true };
  const { post, swap, log } = await startSwapScene(t, ['sglang'], { script }, options);
  const response = await post('/v1/completions', { ...body, max_tokens: 50, stream: true });
  const events: Record<string, unknown>[] = [];
  // The response is truncated after its error event.
  const over = (async () => {
    for await (const event of eventsOf(response)) events.push(event);
  })().catch(() => {});
  await isHeld;
  await swap('v1');
  await over;
  const last = events.at(-1) as { error?: { code?: string } };
  assert.equal(last.error?.code, 'session_too_stale', JSON.stringify(events));
  await until('the engine has stopped', () => log.length === 1);
  assert.deepEqual(
    log.map(({ finish }) => finish.type),
    ['abort'],
  );
});
