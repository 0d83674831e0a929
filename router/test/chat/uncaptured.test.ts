import assert from 'node:assert/strict';
import { renameSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { newSessionId } from '../../src/recorder/shared/session-id.ts';
import { MAX_ANSWER_BYTES } from '../../src/recorder/tap/answer-tap.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { type EngineRequest, answer, startEngine, wellButUnknown } from '../harness/engine.ts';
import { recordedLog } from '../harness/log-lines.ts';
import { type RouterOptions, startTestRouter, untilIdle } from '../harness/router.ts';
import { startedThreads } from '../harness/started-threads.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

const PATH = '/v1/chat/completions';
const PLUGIN = 'chat-sessions:{"engine":"sglang","verify":false}';
const BODY = '{"messages":[{"role":"user","content":"a"}],"stream":true}';

/** A router before an engine whose responses are the test's. Chats with a session key are sessions. */
async function start(t: TestContext, respond: (asked: EngineRequest) => void, options: RouterOptions = {}) {
  const bodies: string[] = [];
  const onRequest = async (asked: EngineRequest): Promise<void> => {
    bodies.push(String(await asked.payload()));
    respond(asked);
  };
  const engine = await startEngine(t, {
    onRequest: (asked) => void onRequest(asked),
    // Neither SGLang nor vLLM.
    control: (path) => (path === '/v1/models' ? answer(200, '{"data":[]}') : wellButUnknown(path)),
  });
  const tokenizerPath = join(temporaryFolder(t), 'model');
  writeTokenizer(tokenizerPath);
  const { log, of } = recordedLog('warn');
  const router = await startTestRouter(
    t,
    { workerUrls: [engine.url], tokenizerPath, plugin: [PLUGIN], captureChat: true, ...options },
    { log },
  );
  return {
    router,
    engine,
    bodies,
    tokenizerPath,
    post: (path: string, body: string | Buffer<ArrayBuffer>): Promise<Response> =>
      fetch(router.url + path, { method: 'POST', body, headers: { 'x-session-id': 'a' } }),
    async uncaptured(): Promise<string | undefined> {
      const page = await (await fetch(`${router.url}/metrics`)).text();
      return /^turnout_chat_uncaptured_total (\d+)$/m.exec(page)?.[1];
    },
    logged: () => of('a response was not captured').map(({ problem, worker }) => ({ problem, worker })),
  };
}

test('a response that is too large for the record is counted, and the log says so', async (t) => {
  const piece = `data: {"x":"${'x'.repeat(4_194_304)}"}\n\n`;
  const { engine, router, post, uncaptured, logged } = await start(t, (asked) => {
    const fields = ['content-type: text/event-stream'];
    asked.connection.write(answer(200, piece.repeat(Math.ceil(MAX_ANSWER_BYTES / piece.length) + 1), fields));
  });
  const response = await post(PATH, BODY);
  assert.equal(response.status, 200);
  assert.ok((await response.arrayBuffer()).byteLength > MAX_ANSWER_BYTES);
  await untilIdle(router);
  assert.equal(await uncaptured(), '1');
  assert.deepEqual(logged(), [{ problem: `it has more than ${MAX_ANSWER_BYTES} bytes`, worker: engine.url }]);
});

test('without the recorder thread plain chats go on as they are; chats in sessions by path can not', async (t) => {
  const threads = startedThreads(t);
  const { bodies, post, tokenizerPath, logged } = await start(t, (asked) => asked.answer('{}'));
  renameSync(tokenizerPath, `${tokenizerPath}.away`);
  await threads[0]!.terminate();
  const plain = await post(PATH, BODY);
  assert.deepEqual([plain.status, await plain.text()], [200, '{}']);
  assert.deepEqual(bodies, [BODY]);
  assert.match(String(logged()[0]?.problem), /ended/);
  const refused = await post(`/sessions/${newSessionId()}${PATH}`, BODY);
  assert.equal(refused.status, 503);
  renameSync(`${tokenizerPath}.away`, tokenizerPath);
});

const LARGE = Buffer.alloc(33_554_433, ' ');
LARGE.write(BODY);
const notForRecord = [
  ['that is too large', PLUGIN, LARGE, /may have at most 33554432 bytes/],
  ['that the router can not read', PLUGIN, Buffer.from('{}'), /messages.{1,2} has to be a list/],
  ['of an engine that takes no ids', 'chat-sessions:{"verify":false}', Buffer.from(BODY), /neither SGLang nor vLLM/],
] as const;
for (const [what, plugin, body, words] of notForRecord) {
  test(`a plain chat ${what} goes as it is, counted; in a session by path, or where captures are required, it is refused`, async (t) => {
    const options = { plugin: [plugin], disableHealthCheck: false };
    const { bodies, post, router, uncaptured, logged } = await start(t, (asked) => asked.answer('{}'), options);
    await until('the kind of the engine is known', () => router.fleet.workers[0]!.engine !== null);
    const plain = await post(PATH, body);
    assert.deepEqual([plain.status, await plain.text()], [200, '{}']);
    assert.deepEqual(bodies, [body.toString()]);
    assert.equal(await uncaptured(), '1');
    assert.match(String(logged()[0]?.problem), words);
    const inSession = await post(`/sessions/${newSessionId()}${PATH}`, body);
    assert.match(await inSession.text(), words);
    const strict = await start(t, (asked) => asked.answer('{}'), { ...options, captureRequired: true });
    await until('the kind of the engine is known', () => strict.router.fleet.workers[0]!.engine !== null);
    assert.match(await (await strict.post(PATH, body)).text(), words);
    assert.equal(await strict.uncaptured(), '0');
    assert.deepEqual([bodies.length, strict.bodies.length], [1, 0]);
  });
}

test('a response to fewer tokens than were sent (SGLang truncates prompts with --allow-auto-truncate) is counted, and the log says so', async (t) => {
  const sampled = { finish_reason: { type: 'stop' }, output_token_logprobs: [[-0.5, 300, null]] };
  for (const place of ['meta_info', 'usage', 'usage of a stream']) {
    const counted = { prompt_tokens: 3, completion_tokens: 1 };
    const info = { ...sampled, ...(place === 'meta_info' ? counted : {}) };
    const message = { role: 'assistant', content: 'x' };
    const whole = { choices: [{ index: 0, message, finish_reason: 'stop', meta_info: info }], usage: counted };
    const events = [
      { choices: [{ index: 0, delta: message, finish_reason: 'stop' }] },
      { choices: [], sglext: { output_ids: [[300]] } },
      { choices: [], usage: counted },
    ];
    const stream = events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('') + 'data: [DONE]\n\n';
    const isStream = place === 'usage of a stream';
    const fields = [`content-type: ${isStream ? 'text/event-stream' : 'application/json'}`];
    const { engine, router, post, uncaptured, logged } = await start(t, (asked) => {
      asked.connection.write(answer(200, isStream ? stream : JSON.stringify(whole), fields));
    });
    const content = 'word '.repeat(50);
    const body = JSON.stringify({ messages: [{ role: 'user', content }], stream: isStream });
    const response = await post(PATH, body);
    assert.equal(response.status, 200);
    await response.text();
    await untilIdle(router);
    await until('it is counted', async () => (await uncaptured()) === '1');
    const [{ problem, worker }] = logged() as [{ problem: string; worker: string }];
    assert.match(problem, /^the engine read 3 tokens where there are \d\d$/, place);
    assert.equal(worker, engine.url);
  }
});
