import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import { parquetReadObjects } from 'hyparquet';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { decode } from '../../../simulator/src/tokens/tokenizer.ts';
import { type ChatScene, eventsOf, startChatScene } from '../harness/chat-scene.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

interface Line {
  readonly session: string;
  readonly model: string;
  readonly exact: boolean;
  readonly tokens: number[];
  readonly loss_mask: number[];
  readonly rollout_log_probs: (number | null)[];
  readonly turns: {
    readonly path: string;
    readonly exact: boolean;
    readonly parent: string | null;
    readonly prompt_tokens: number;
    readonly output_tokens: number;
    readonly finish_reason: string;
    readonly request?: string;
    readonly answer?: string;
    readonly text?: { readonly prompt: string; readonly response: string };
  }[];
}

const bodies = {
  '/v1/messages':
    '{"model":"sim","max_tokens":12,"seed":12345678901234567890,"system":"Be brief.","messages":[{"role":"user","content":[{"type":"text","text":"What is of ten?"}]}]}',
  '/v1/responses':
    '{"model":"sim","max_output_tokens":12,"instructions":"Be brief.","input":[{"role":"user","content":"What is of ten?"}],"seed":12345678901234567890}',
} as const;
type Path = keyof typeof bodies;

const prompts: Record<Path, string> = {
  '/v1/messages':
    '{"system":"Be brief.","messages":[{"role":"user","content":[{"type":"text","text":"What is of ten?"}]}]}',
  '/v1/responses': '{"instructions":"Be brief.","input":[{"role":"user","content":"What is of ten?"}]}',
};

const start = (t: TestContext, kind: SimOptions['kind'], router: object = {}): Promise<ChatScene> =>
  startChatScene(t, { kind, router: { plugin: ['radix-tree'], ...router } });

async function lines(scene: Pick<ChatScene, 'router'>, query = ''): Promise<Line[]> {
  await untilIdle(scene.router);
  const answer = await fetch(`${scene.router.url}/trajectories?format=jsonl${query}`);
  const text = await answer.text();
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line);
}

const asStream = (body: string): string => `${body.slice(0, -1)},"stream":true}`;

/** What differs from answer to answer of one engine. */
const alike = (answer: string): string =>
  answer
    .replaceAll(/"(id|item_id)":"[^"]*"/g, '"$1":""')
    .replaceAll(/"(created_at|cached_tokens|input_tokens|cache_read_input_tokens)":\d+/g, '"$1":0');

/** The visible text of what the engine sampled last. */
const said = ({ log }: ChatScene): string => decode(log.at(-1)!.outputIds, false);

for (const kind of ['sglang', 'vllm'] as const) {
  for (const path of Object.keys(bodies) as Path[]) {
    for (const stream of [false, true]) {
      const body = stream ? asStream(bodies[path]) : bodies[path];
      const isExact = kind === 'vllm' && path === '/v1/responses';
      const what = `${kind} ${path}, ${stream ? 'a stream' : 'a whole answer'}`;
      test(`${what}: on record ${isExact ? 'with its tokens' : 'as text'}, and passed on as it is`, async (t) => {
        const scene = await start(t, kind);
        const direct = await fetch(scene.engines[0]!.url + path, { method: 'POST', body });
        const expected = alike(await direct.text());
        const { status, text } = await scene.post(path, body, { 'x-session-id': 's' });
        assert.equal(status, 200, text);
        assert.equal(alike(text), expected);
        const all = await lines(scene);
        assert.equal(all.length, 1);
        const [line] = all;
        const [turn] = line!.turns;
        const { inputIds, outputIds, finish } = scene.log.at(-1)!;
        assert.deepEqual([line!.session, line!.model, turn!.path], ['s', 'sim', path]);
        assert.deepEqual([line!.exact, turn!.exact], [isExact, isExact]);
        assert.deepEqual([turn!.prompt_tokens, turn!.output_tokens], [inputIds.length, outputIds.length]);
        if (isExact) {
          assert.deepEqual(line!.tokens, [...inputIds, ...outputIds]);
          assert.deepEqual(line!.loss_mask, [...inputIds.map(() => 0), ...outputIds.map(() => 1)]);
          assert.equal(turn!.text, undefined);
          assert.equal(turn!.finish_reason, finish.type);
          return;
        }
        assert.deepEqual([line!.tokens, line!.loss_mask, line!.rollout_log_probs], [[], [], []]);
        assert.deepEqual(turn!.text, { prompt: prompts[path], response: said(scene) });
        assert.equal(turn!.request, body);
        assert.equal(turn!.answer, text);
      });
    }
  }
}

test('a client that leaves after the head of a response leaves no turn', async (t) => {
  const engine = createServer((_, answer) =>
    answer.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders(),
  ).listen(0, '127.0.0.1');
  await once(engine, 'listening');
  t.after(() => engine.close());
  const workerUrls = [`http://127.0.0.1:${(engine.address() as AddressInfo).port}`];
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const router = await startTestRouter(t, { workerUrls, tokenizerPath, plugin: ['radix-tree'] });
  for (const path of Object.keys(bodies) as Path[]) {
    const client = new AbortController();
    await fetch(router.url + path, { method: 'POST', body: asStream(bodies[path]), signal: client.signal });
    client.abort();
  }
  assert.deepEqual(await lines({ router }), []);
});

test('a client that asks vLLM for the ids itself gets them, and logprobs it asks for are on record', async (t) => {
  const scene = await start(t, 'vllm');
  const more = '"enable_response_messages":true,"include":["message.output_text.logprobs"]';
  const { text } = await scene.post('/v1/responses', `${bodies['/v1/responses'].slice(0, -1)},${more}}`);
  const { inputIds, outputIds } = scene.log.at(-1)!;
  const answer = JSON.parse(text) as {
    input_messages: { tokens: number[] }[];
    output_messages: { tokens: number[] }[];
    output: { content: { logprobs: { logprob: number }[] }[] }[];
  };
  assert.deepEqual([answer.input_messages[0]!.tokens, answer.output_messages[0]!.tokens], [inputIds, outputIds]);
  const [line] = await lines(scene);
  const logprobs = answer.output[0]!.content[0]!.logprobs.map(({ logprob }) => logprob);
  assert.deepEqual(line!.rollout_log_probs, [...inputIds.map(() => 0), ...logprobs]);
});

test('large requests and answers of vLLM are on record with their tokens, and ids stay with the router', async (t) => {
  const scene = await startChatScene(t, {
    kind: 'vllm',
    sim: { maxModelTokens: 400_000, kvTokens: 1_000_000 },
    router: { plugin: ['radix-tree'] },
  });
  for (const stream of [false, true]) {
    const input = [{ role: 'user', content: 'What is of ten? '.repeat(5_000) }];
    const body = { model: 'sim', max_output_tokens: 8, input, stream };
    const { status, text } = await scene.post('/v1/responses', body, { 'x-session-id': String(stream) });
    assert.equal(status, 200, text);
    assert.ok(!text.includes('raw_message_tokens'));
  }
  assert.deepEqual(
    (await lines(scene)).map(({ exact, tokens }) => [exact, tokens]),
    scene.log.map(({ inputIds, outputIds }) => [true, [...inputIds, ...outputIds]]),
  );
});

test('every format of an export says what is known as text alone', async (t) => {
  const scene = await start(t, 'sglang');
  await scene.post('/v1/messages', bodies['/v1/messages']);
  await scene.post('/generate', { text: 'Ten', sampling_params: { max_new_tokens: 4 } });
  await untilIdle(scene.router);
  const get = async (format: string) => {
    const answer = await fetch(`${scene.router.url}/trajectories?format=${format}`);
    return Buffer.from(await answer.arrayBuffer());
  };
  const text = { prompt: prompts['/v1/messages'], response: decode(scene.log[0]!.outputIds, false) };
  const parquet = await get('parquet');
  const file = parquet.buffer.slice(parquet.byteOffset, parquet.byteOffset + parquet.length);
  const rows = await parquetReadObjects({ file });
  assert.deepEqual(
    rows.map(({ exact, tokens, text: told }) => [exact, (tokens as number[]).length > 0, told ?? null]),
    [
      [false, false, JSON.stringify(text)],
      [true, true, null],
    ],
  );
  const tensors = await get('safetensors');
  const head = 8 + Number(tensors.readBigUInt64LE(0));
  const { meta } = JSON.parse(tensors.toString('utf8', 8, head)) as { meta: { data_offsets: [number, number] } };
  const [from, to] = meta.data_offsets;
  const [first, second] = JSON.parse(tensors.toString('utf8', head + from, head + to)) as Line[];
  assert.deepEqual([first!.exact, first!.turns[0]!.text, second!.exact], [false, text, true]);
  const listed = await fetch(`${scene.router.url}/trajectories`);
  const { trajectories } = (await listed.json()) as { trajectories: { exact: boolean }[] };
  assert.deepEqual(
    trajectories.map(({ exact }) => exact),
    [false, true],
  );
});

test('chat sessions: calls of a session by path are on record under it, and are no samples', async (t) => {
  const scene = await start(t, 'sglang', { plugin: ['chat-sessions'] });
  const session = await scene.begin();
  const path = `/sessions/${session}/v1/messages`;
  assert.equal((await scene.post(path, bodies['/v1/messages'])).status, 200);
  assert.equal((await scene.post('/v1/messages', bodies['/v1/messages'], { 'x-session-id': 'other' })).status, 200);
  assert.deepEqual(
    (await lines(scene)).map((line) => [line.session, line.exact]),
    [[session, false]],
    'without --capture-chat a call with a key of its own is not recorded',
  );
  await scene.say(session, [{ role: 'user', content: 'And of two?' }]);
  const samples = await scene.post(`/sessions/${session}/samples`, {});
  assert.equal(samples.status, 200);
  assert.match(samples.text, /"tokens\.0"/);
  assert.doesNotMatch(samples.text, /"tokens\.1"/);
});

test('an error of the engine is no record, and a request that is no JSON is the engine’s to refuse', async (t) => {
  const scene = await start(t, 'vllm');
  for (const path of Object.keys(bodies)) {
    for (const body of ['{"model":"sim"}', '{']) assert.equal((await scene.post(path, body)).status, 400);
  }
  assert.deepEqual(await lines(scene), []);
});

test('a stream that its client leaves is on record as far as it came', async (t) => {
  const scene = await startChatScene(t, {
    sim: { timeScale: 1, meanOutputTokens: 0 },
    router: { plugin: ['radix-tree'] },
  });
  const body = asStream(bodies['/v1/messages'].replace('"max_tokens":12', '"max_tokens":2000'));
  const response = await fetch(`${scene.router.url}/v1/messages`, { method: 'POST', body });
  const reader = response.body!.getReader();
  let got = '';
  while (!got.includes('content_block_delta')) got += Buffer.from((await reader.read()).value).toString();
  await reader.cancel();
  const [line] = await lines(scene);
  const [turn] = line!.turns;
  assert.equal(turn!.finish_reason, 'abort');
  const seen = eventsOf(got.replaceAll(/event: \w+\n/g, '')) as { delta?: { text?: string } }[];
  const text = seen.map(({ delta }) => delta?.text ?? '').join('');
  assert.ok(text !== '' && turn!.text!.response.startsWith(text), `${text} | ${turn!.text!.response}`);
});
