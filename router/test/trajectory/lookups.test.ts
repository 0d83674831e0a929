import assert from 'node:assert/strict';
import { renameSync } from 'node:fs';
import { type TestContext, test } from 'node:test';
import { encode } from '../../../simulator/src/tokens/tokenizer.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { connectClient, request } from '../harness/client.ts';
import { type EngineRequest, startEngine } from '../harness/engine.ts';
import { type RouterOptions, startTestRouter, untilIdle } from '../harness/router.ts';
import { startedThreads } from '../harness/started-threads.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

interface Gates {
  /** `/tokenize` is answered then. */
  readonly mayCompare?: Promise<void>;
  /** `/generate` is answered then. */
  readonly mayAnswer?: Promise<void>;
}

const [SAMPLED] = encode('Yes');
const ANSWER = JSON.stringify({
  text: 'Yes',
  output_ids: [SAMPLED],
  meta_info: { finish_reason: { type: 'length' }, output_token_logprobs: [[-1, SAMPLED, null]] },
});

/** A router with a radix tree of at most 64 KB before an SGLang. */
async function start(t: TestContext, options: RouterOptions = {}, { mayCompare, mayAnswer }: Gates = {}) {
  const threads = startedThreads(t);
  const generations: EngineRequest[] = [];
  const respond = async (asked: EngineRequest): Promise<void> => {
    const body = JSON.parse(String(await asked.payload())) as { prompt: string };
    if (asked.target === '/tokenize') {
      await mayCompare;
      return asked.answer(JSON.stringify({ tokens: encode(body.prompt) }));
    }
    generations.push(asked);
    await mayAnswer;
    asked.answer(ANSWER);
  };
  const engine = await startEngine(t, { onRequest: (asked) => void respond(asked) });
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const router = await startTestRouter(t, {
    workerUrls: [engine.url],
    tokenizerPath,
    plugin: ['radix-tree'],
    radixMaxBytes: 65_536,
    ...options,
  });
  const post = (body: string): Promise<Response> => fetch(`${router.url}/generate`, { method: 'POST', body });
  return {
    router,
    generations,
    post,
    tokenizerPath,
    async stats() {
      const response = await fetch(`${router.url}/radix_tree/stats`);
      return (await response.json()) as Record<'prompts' | 'bytes' | 'failures', number>;
    },
    async bodies(): Promise<string[]> {
      return Promise.all(generations.map(async (asked) => String(await asked.payload())));
    },
    /** Ends the recorder thread, which can't be started again without its tokenizer. */
    async endThread(): Promise<void> {
      renameSync(tokenizerPath, `${tokenizerPath}.away`);
      await threads[0]!.terminate();
      renameSync(`${tokenizerPath}.away`, tokenizerPath);
    },
  };
}

const LARGE = JSON.stringify({ text: 'What is of ten? '.repeat(10_000) });

for (const when of ['its tokens are looked up', 'tokenizers are compared'] as const) {
  test(`a client that leaves while ${when} leaves nothing open`, async (t) => {
    const compared = Promise.withResolvers<void>();
    if (when === 'its tokens are looked up') compared.resolve();
    const { router, post, stats } = await start(t, {}, { mayCompare: compared.promise });
    const client = await connectClient(t, router.url);
    client.write(request('POST', '/generate', LARGE));
    await until('the request has come', () => router.pipeline.inFlight.size === 1);
    if (when === 'tokenizers are compared') await until('it was looked up', async () => (await stats()).prompts === 1);
    client.socket.destroy();
    await untilIdle(router);
    compared.resolve();
    await until('it was looked up', async () => (await stats()).prompts === 1);
    // A prompt that is still open is not evicted.
    assert.equal((await post('{"input_ids":[300]}')).status, 200);
    await untilIdle(router);
    const { bytes } = await stats();
    assert.ok(bytes < 65_536, `${bytes} bytes`);
  });
}

test('a captured response may not come compressed', async (t) => {
  const { generations, post } = await start(t);
  await post('{"text":"What"}');
  await post('{"input_ids":[300]}');
  assert.deepEqual(
    generations.map(({ head }) => head.get('accept-encoding')),
    [undefined, undefined],
  );
});

test('prompts of ids wait for no comparison of tokenizers', async (t) => {
  const { bodies, post } = await start(t, {}, { mayCompare: new Promise(() => {}) });
  const wanted = ['{"input_ids":[300]}', '{"input_ids":[[300],[301]]}'];
  for (const body of wanted) await post(body);
  assert.deepEqual(await bodies(), wanted);
});

test('one sample of one prompt of ids is not looked up before it is answered, all else is', async (t) => {
  const mayAnswer = Promise.withResolvers<void>();
  const { generations, post, stats } = await start(t, {}, { mayAnswer: mayAnswer.promise });
  const answered: Promise<Response>[] = [];
  const isLookedUp = async (body: string): Promise<boolean> => {
    const { prompts } = await stats();
    const { length } = generations;
    answered.push(post(body));
    await until('the request is at the engine', () => generations.length > length);
    return (await stats()).prompts > prompts;
  };
  assert.equal(await isLookedUp('{"input_ids":[300,301,302]}'), false);
  assert.equal(await isLookedUp('{"input_ids":[300,301,302],"sampling_params":{"n":2}}'), true);
  assert.equal(await isLookedUp('{"text":"What"}'), true);
  mayAnswer.resolve();
  await Promise.all(answered);
});

test('a request whose tokens can not be looked up goes on as it is; where captures are required it is refused', async (t) => {
  const body = JSON.stringify({ text: 'x'.repeat(4_194_305) });
  const { bodies, post, stats } = await start(t);
  assert.equal((await post(body)).status, 200);
  assert.deepEqual(await bodies(), [body]);
  assert.equal((await stats()).failures, 1);
  const strict = await start(t, { captureRequired: true });
  const refused = await strict.post(body);
  assert.equal(refused.headers.get('x-turnout-error'), 'capture_failed');
  assert.match(await refused.text(), /--capture-required is set: .*at most 4194304 are tokenised/);
});

test('without the recorder thread a request goes on as it is', async (t) => {
  const { bodies, post, router, endThread } = await start(t);
  await endThread();
  const body = '{"text":"What"}';
  assert.equal((await post(body)).status, 200);
  assert.deepEqual(await bodies(), [body]);
  const page = await (await fetch(`${router.url}/metrics`)).text();
  assert.match(page, /^turnout_radix_tree_failures_total 1$/m);
});

test('the thread ends while tokenizers are compared: the request goes on with the ids that were found', async (t) => {
  const compared = Promise.withResolvers<void>();
  const { bodies, post, stats, endThread } = await start(t, {}, { mayCompare: compared.promise });
  const answered = post('{"text":"What"}');
  await until('it was looked up', async () => (await stats()).prompts === 1);
  await endThread();
  compared.resolve();
  assert.equal((await answered).status, 200);
  assert.deepEqual(await bodies(), [JSON.stringify({ input_ids: encode('What') })]);
});
