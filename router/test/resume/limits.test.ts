import assert from 'node:assert/strict';
import { test } from 'node:test';
import { until } from '../harness/within.ts';
import { connectClient } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import { type EngineRequest, answer, startEngine } from '../harness/engine.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { chunk } from '../harness/message.ts';
import { BODY, DONE, END, JOINED, LAST_CHUNK, begin, end, event, payloadOf, scene } from './played-engines.ts';

const DIED = `data: {"error":{"message":"EngineCore died","code":500}}\n\n`;

test('a hung engine’s generation continues', async (t) => {
  const s = await scene(t);
  await begin(s);
  const [x] = [...s.router.pipeline.inFlight];
  x!.activity!.workerHung!(x!.worker!, 'a proof');
  assert.ok((await end(s)).includes(JOINED));
  assert.equal(await s.metric('turnout_resumes_total{cause="cut_hung"}'), 'turnout_resumes_total{cause="cut_hung"} 1');
});

test('an engine that reports its own failure within the stream has failed', async (t) => {
  const s = await scene(t);
  const asked = await begin(s);
  asked.connection.write(chunk(DIED) + chunk(DONE) + LAST_CHUNK);
  const rest = await end(s);
  assert.ok(rest.includes(JOINED));
  assert.doesNotMatch(rest, /EngineCore/);
  assert.equal(rest.split('[DONE]').length, 2);
});

for (const [name, said, options] of [
  ['after the last token', [7, 8, 9, 10], {}],
  ['that are not retried', [7, 8, 9], { retryMaxRetries: 0 }],
] as const) {
  test(`the failure that an engine reports passes, of generations ${name}`, async (t) => {
    const s = await scene(t, options);
    const asked = await begin(s);
    asked.connection.write(chunk(event(said)) + chunk(DIED) + chunk(DONE) + LAST_CHUNK);
    assert.match(await s.client.read('0\r\n\r\n'), /EngineCore died.*\[DONE\]/s);
    assert.equal(s.engines[1].requests.length, 0);
  });
}

test('an engine that should continue, and reports its own failure before a token, is replaced', async (t) => {
  const s = await scene(t);
  (await begin(s)).connection.reset();
  const asked = await s.engines[1].next();
  await asked.payload();
  asked.beginStream();
  asked.connection.write(chunk('data: {"error":{"code":500}}\n\n') + chunk(DONE) + LAST_CHUNK);
  const again = await s.engines[0].next();
  assert.deepEqual((await payloadOf(again)).input_ids, [1, 2, 3, 7, 8]);
  again.beginStream();
  again.connection.write(chunk(END) + chunk(DONE) + LAST_CHUNK);
  assert.ok((await s.client.read('0\r\n\r\n')).includes(JOINED));
});

test('a generation whose engines report failures is continued as often as the option says', async (t) => {
  let parts = 0;
  const onRequest = async (asked: EngineRequest): Promise<void> => {
    await asked.payload();
    asked.beginStream();
    const ids = [parts, parts + 1];
    parts++;
    asked.connection.write(chunk(event(ids.slice(0, 1))) + chunk(event(ids)));
    asked.connection.write(chunk('data: {"error":{"code":500}}\n\n') + chunk(DONE) + LAST_CHUNK);
  };
  const engine = await startEngine(t, { onRequest: (asked) => void onRequest(asked) });
  const options = { workerUrls: [engine.url], resume: 'on', retryMaxRetries: 3, disableCircuitBreaker: true } as const;
  const router = await startTestRouter(t, options);
  const client = await connectClient(t, router.url);
  client.write(post('/generate', { ...BODY, sampling_params: { max_new_tokens: 64 } }));
  assert.match(await client.read('[DONE]'), /"error":\{"code":500\}/);
  assert.equal(parts, 4);
});

test('an error that is the request’s own passes', async (t) => {
  const s = await scene(t);
  s.client.write(post('/generate', BODY));
  const asked = await s.engines[0].next();
  asked.beginStream();
  asked.connection.write(chunk('data: {"error":{"code":400}}\n\n') + chunk(DONE) + LAST_CHUNK);
  assert.ok((await s.client.read('0\r\n\r\n')).includes('"code":400'));
});

test('an error that is the request’s own passes after tokens too', async (t) => {
  const s = await scene(t);
  const asked = await begin(s);
  asked.connection.write(chunk('data: {"error":{"code":400}}\n\n') + chunk(DONE) + LAST_CHUNK);
  assert.ok((await s.client.read('0\r\n\r\n')).includes('"code":400'));
});

for (const failure of ['', DIED]) {
  const what = failure === '' ? 'its end' : 'its end, after a failure that its engine reports,';
  test(`a stream that lacks only ${what} gets it`, async (t) => {
    const s = await scene(t);
    const asked = await begin(s);
    asked.connection.write(chunk(event([7, 8, 9], { type: 'stop', matched: 9 }) + failure));
    await s.client.read(`"matched":9}`);
    asked.connection.reset();
    const rest = await s.client.read('0\r\n\r\n');
    assert.ok(rest.includes(failure) && rest.includes(DONE));
    await untilIdle(s.router);
    assert.equal(s.engines[1].requests.length, 0);
  });
}

test('an aborted generation stays aborted, except with --resume all if no client requested the abort', async (t) => {
  const aborted = chunk(event([7, 8], { type: 'abort', message: 'Aborted' })) + chunk(DONE) + LAST_CHUNK;
  await t.test('on', async (own) => {
    const s = await scene(own);
    (await begin(s)).connection.write(aborted);
    assert.ok((await s.client.read('0\r\n\r\n')).includes('"type":"abort"'));
  });
  await t.test('all', async (own) => {
    const s = await scene(own, { resume: 'all' });
    (await begin(s)).connection.write(aborted);
    const rest = await end(s);
    assert.ok(rest.includes(JOINED));
    assert.doesNotMatch(rest, /abort/);
  });
  await t.test('all, by engines that abort it before its first token', async (own) => {
    const s = await scene(own, { resume: 'all', retryMaxRetries: 2 });
    let attempts = 0;
    const abort = async (asked: EngineRequest): Promise<void> => {
      attempts++;
      await asked.payload();
      asked.beginStream();
      asked.connection.write(chunk(event([], { type: 'abort' })) + chunk(DONE) + LAST_CHUNK);
    };
    for (const engine of s.engines) engine.onRequest = (asked) => void abort(asked);
    s.client.write(post('/generate', BODY));
    assert.match(await s.client.read('0\r\n\r\n'), /"type":"abort"/);
    assert.equal(attempts, 3);
  });
  await t.test('all, without retries', async (own) => {
    const s = await scene(own, { resume: 'all', disableRetries: true });
    (await begin(s)).connection.write(aborted);
    assert.ok((await s.client.read('0\r\n\r\n')).includes('"type":"abort"'));
    assert.equal(await s.metric('turnout_resumes_total{cause="aborted"}'), '');
  });
  await t.test('all, with new tokens after an abort without', async (own) => {
    const s = await scene(own, { resume: 'all', retryMaxRetries: 1 });
    s.client.write(post('/generate', BODY));
    const first = await s.engines[0].next();
    await first.payload();
    first.beginStream();
    first.connection.write(chunk(event([], { type: 'abort' })) + chunk(DONE) + LAST_CHUNK);
    const second = await s.engines[1].next();
    await second.payload();
    second.beginStream();
    second.connection.write(chunk(event([7])) + chunk(event([7, 8])));
    await s.client.read('<7><8>');
    second.connection.write(aborted);
    const third = await s.engines[0].next();
    assert.deepEqual((await payloadOf(third))['input_ids'], [1, 2, 3, 7, 8]);
    third.beginStream();
    third.connection.write(chunk(END) + chunk(DONE) + LAST_CHUNK);
    assert.ok((await s.client.read('0\r\n\r\n')).includes(JOINED));
  });
  for (const path of ['/abort_request', '/areal_pause_generation', '/areal_update_weights_xccl']) {
    await t.test(`all, requested through the router with ${path}`, async (own) => {
      const s = await scene(own, { resume: 'all' });
      const generating = await begin(s);
      const trainer = await connectClient(own, s.router.url);
      trainer.write(post(path, { abort_all: true }));
      for (const engine of s.engines) {
        const asked = await engine.next();
        assert.equal(asked.target, path);
        await asked.payload();
        asked.answer('');
      }
      await trainer.answer('POST');
      generating.connection.write(aborted);
      assert.ok((await s.client.read('0\r\n\r\n')).includes('"type":"abort"'));
    });
  }
});

test('without another engine the response is truncated', async (t) => {
  const s = await scene(t, { retryMaxRetries: 0 });
  (await begin(s)).connection.reset();
  await s.client.ended;
  assert.equal(
    await s.metric('turnout_unresumed_total{reason="retries"}'),
    'turnout_unresumed_total{reason="retries"} 1',
  );
});

test('an engine that fails after the last token, before it says so, is not asked for a rest', async (t) => {
  const s = await scene(t);
  const asked = await begin(s);
  asked.connection.write(chunk(event([7, 8, 9, 10])));
  await s.client.read('<10>');
  asked.connection.reset();
  await s.client.ended;
  assert.equal(await s.metric('turnout_unresumed_total{reason="limit"}'), 'turnout_unresumed_total{reason="limit"} 1');
  assert.equal(s.engines[1].requests.length, 0);
});

const NOT_CONTINUED =
  /"error":\{"message":"The engine ended its response too early, and no other engine could continue it\. Retry\."/;

test('an engine that refuses the rest ends the response, with an error event', async (t) => {
  const s = await scene(t);
  (await begin(s)).connection.reset();
  const asked = await s.engines[1].next();
  await asked.payload();
  asked.connection.write(answer(400, '{"error":"too long"}'));
  await s.client.ended;
  await untilIdle(s.router);
  assert.doesNotMatch(s.client.unread, /too long/);
  assert.match(s.client.unread, /data: \{"error":\{.*\}\}\n\n/);
});

for (const [name, lost] of Object.entries({
  'when no engine accepts connections': (s: Awaited<ReturnType<typeof scene>>) => {
    for (const engine of s.engines) engine.kill();
  },
  'when no engine of its kind is left': (s: Awaited<ReturnType<typeof scene>>) => {
    s.router.fleet.workers[1]!.engine = 'openai';
    s.engines[0].kill();
  },
})) {
  test(`a stream that is not continued ends with an error event, ${name}`, async (t) => {
    const s = await scene(t);
    await begin(s);
    lost(s);
    await s.client.ended;
    assert.match(s.client.unread, NOT_CONTINUED);
  });
}

test('a whole response that breaks off is asked for again from its start, and its second answer counts', async (t) => {
  const s = await scene(t);
  s.client.write(post('/generate', { ...BODY, stream: false }));
  const asked = await s.engines[0].next();
  await asked.payload();
  asked.connection.write('HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"text":"a');
  await until('the response has begun', () => [...s.router.pipeline.inFlight].every(({ status }) => status === 200));
  asked.connection.reset();
  const again = await s.engines[1].next();
  assert.deepEqual(await payloadOf(again), { ...BODY, stream: false });
  again.connection.write(answer(400, '{"error":"too long"}'));
  const { status, text } = await s.client.answer('POST');
  assert.deepEqual([status, text], [400, '{"error":"too long"}']);
  await untilIdle(s.router);
  const sample = `turnout_worker_responses_total{worker="${s.engines[1].url}",status="4xx"}`;
  assert.equal(await s.metric(sample), `${sample} 1`);
});

test('what can not be continued exactly is not, and is counted', async (t) => {
  const s = await scene(t);
  const sampling_params = { max_new_tokens: 4, presence_penalty: 1 };
  (await begin(s, { ...BODY, sampling_params })).connection.reset();
  await s.client.ended;
  assert.equal(
    await s.metric('turnout_unresumed_total{reason="penalties"}'),
    'turnout_unresumed_total{reason="penalties"} 1',
  );
  assert.equal(s.engines[1].requests.length, 0);
});

test('an event that is too large to be kept passes as it comes', async (t) => {
  const s = await scene(t);
  const asked = await begin(s);
  const large = `data: {"text":"${'x'.repeat(3_000_000)}","output_ids":[7,8,9]}\n\n`;
  asked.connection.write(chunk(large.slice(0, 2_000_000)));
  await s.client.read('x'.repeat(1_000_000));
  asked.connection.write(chunk(large.slice(2_000_000)));
  await s.client.read('"output_ids":[7,8,9]}');
  asked.connection.reset();
  await s.client.ended;
  assert.equal(
    await s.metric('turnout_unresumed_total{reason="large_event"}'),
    'turnout_unresumed_total{reason="large_event"} 1',
  );
  await untilIdle(s.router);
  assert.equal(await s.metric('turnout_retry_buffer_bytes'), 'turnout_retry_buffer_bytes 0');
});

for (const [name, said, isContinued] of [
  ['within a character', '{"text":"<7>\\ufffd"}', false],
  ['behind a character', '{"text":"<7><8><9>"}', true],
  ['where its engine does not say', '{"error":"unknown"}', true],
] as const) {
  test(`an event of several tokens ends ${name}: ${isContinued ? 'continued' : 'not continued'}`, async (t) => {
    const s = await scene(t);
    const body = { ...BODY, sampling_params: { max_new_tokens: 8 } };
    s.client.write(post('/generate', body));
    const first = await s.engines[0].next();
    await first.payload();
    first.beginStream();
    first.connection.write(chunk(event([7])) + chunk(event([7, 8, 9])));
    await s.client.read('<9>');
    first.connection.reset();
    const question = await s.engines[1].next();
    assert.equal(question.target, '/detokenize');
    assert.deepEqual(await payloadOf(question), { tokens: [7, 8, 9] });
    question.answer(said);
    if (isContinued) {
      const rest = await s.engines[1].next();
      assert.deepEqual((await payloadOf(rest))['input_ids'], [1, 2, 3, 7, 8, 9]);
      return;
    }
    await s.client.ended;
    const metric = 'turnout_unresumed_total{reason="text"}';
    assert.equal(await s.metric(metric), `${metric} 1`);
    assert.equal(s.engines[1].requests.length, 1);
  });
}
