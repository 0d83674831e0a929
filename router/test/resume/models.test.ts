import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { connectClient } from '../harness/client.ts';
import { type Engine, answer, startEngine } from '../harness/engine.ts';
import { post } from '../harness/fleet.ts';
import { chunk } from '../harness/message.ts';
import { policyModule } from '../harness/policy-module.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { BODY, event, payloadOf } from './played-engines.ts';

const startModel = (t: TestContext, models: readonly string[]): Promise<Engine> => {
  const list = JSON.stringify({ object: 'list', data: models.map((id) => ({ id, object: 'model' })) });
  const answers: Readonly<Record<string, string>> = {
    '/health': '',
    '/v1/models': list,
    '/model_info': JSON.stringify({ model_path: models[0] ?? '', is_generation: true }),
  };
  return startEngine(t, { control: (path) => answer(path in answers ? 200 : 404, answers[path] ?? '') });
};

/** A generation without a model, whose engine fails after two tokens. The policy turns to the engines in their order. */
async function failing(t: TestContext, lists: readonly (readonly string[])[]) {
  const engines = await Promise.all(lists.map((models) => startModel(t, models)));
  const workerUrls = engines.map(({ url }) => url);
  const place = `${JSON.stringify(workerUrls)}.indexOf`;
  const choose = `(x, workers) => workers.toSorted((a, b) => ${place}(a.url) - ${place}(b.url))[0].alone`;
  const policy = policyModule(t, `() => ({ needs: 'nothing', choose: ${choose} })`);
  const options = { workerUrls, policy, resume: 'on', disableHealthCheck: false };
  const router = await startTestRouter(t, { ...options, healthCheckIntervalSecs: 3_600 });
  await until('all engines are known', () =>
    router.fleet.workers.every(
      ({ engine, models, reasons }) => engine === 'sglang' && models !== null && reasons === 0,
    ),
  );
  const client = await connectClient(t, router.url);
  client.write(post('/generate', BODY));
  const asked = await engines[0]!.next();
  await asked.payload();
  asked.beginStream();
  asked.connection.write(chunk(event([7])) + chunk(event([7, 8])));
  await client.read('<7><8>');
  asked.connection.reset();
  return { router, engines, client };
}

test('a generation without a model continues on an engine that has the model of the first one', async (t) => {
  const { engines } = await failing(t, [['alpha', 'an-adapter'], ['beta'], ['alpha']]);
  assert.deepEqual((await payloadOf(await engines[2]!.next()))['input_ids'], [1, 2, 3, 7, 8]);
  assert.equal(engines[1]!.requests.length, 0);
});

test('an engine that lists no models continues it', async (t) => {
  const { engines } = await failing(t, [['alpha'], []]);
  assert.deepEqual((await payloadOf(await engines[1]!.next()))['input_ids'], [1, 2, 3, 7, 8]);
});

test('without another engine that has this model the generation ends', async (t) => {
  const { router, engines, client } = await failing(t, [['alpha'], ['beta']]);
  engines[0]!.kill();
  await client.ended;
  assert.match(client.unread, /no other engine could continue it/);
  await untilIdle(router);
  assert.equal(engines[1]!.requests.length, 0);
});
