import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import { encode, endOfTurn } from '../../../simulator/src/tokens/tokenizer.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { metric } from '../admission/metric.ts';
import { startChatScene } from '../harness/chat-scene.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { readSamples } from '../harness/safetensors.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';
import { exportedBySession } from './random-trajectories.ts';

const UNKNOWN = 'turnout_trajectory_unknown_logprobs_total';

async function startTree(t: TestContext) {
  const engine = await startSimEngine({ timeScale: 0, meanOutputTokens: 0 });
  t.after(() => engine.close());
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const plugin = ['radix-tree:{"completions":true}'];
  const router = await startTestRouter(t, { workerUrls: [engine.url], tokenizerPath, plugin });
  const post = async (path: string, body: object): Promise<string> => {
    const headers = { 'x-session-id': 's' };
    const response = await fetch(router.url + path, { method: 'POST', body: JSON.stringify(body), headers });
    const text = await response.text();
    assert.equal(response.status, 200, text);
    await untilIdle(router);
    return text;
  };
  return { router, post };
}

for (const [path, body] of [
  ['/generate', { sampling_params: { max_new_tokens: 5 } }],
  ['/v1/completions', { max_tokens: 5 }],
] as const) {
  test(`${path} without logprobs: they are null on record, and 0 with their positions where numbers are wanted`, async (t) => {
    const { router, post } = await startTree(t);
    const ids = encode('What is of ten?');
    const answer = JSON.parse(
      await post(path, { ...body, [path === '/generate' ? 'text' : 'prompt']: 'What is of ten?' }),
    ) as { text?: string; choices?: { text: string }[] };
    const text = answer.text ?? answer.choices![0]!.text;
    const [line] = (await exportedBySession(router.url)).get('s')!;
    const expected = [...ids.map(() => 0), null, null, null, null, null];
    assert.deepEqual(line!.rollout_log_probs, expected);
    assert.deepEqual(line!.loss_mask, [...ids.map(() => 0), 1, 1, 1, 1, 1]);
    const { page } = (await (await fetch(`${router.url}/trajectories/s`)).json()) as {
      page: { rollout_log_probs: unknown; unknown_logprobs: unknown }[];
    };
    assert.deepEqual(page[0]!.rollout_log_probs, expected);
    assert.equal(page[0]!.unknown_logprobs, 5);
    const retrieved = JSON.parse(await post('/retrieve_from_text', { text: `What is of ten?${text}` })) as {
      rollout_logp: unknown;
      unknown_logprobs: unknown;
    };
    assert.deepEqual(
      retrieved.rollout_logp,
      expected.map(() => 0),
    );
    assert.deepEqual(
      retrieved.unknown_logprobs,
      [0, 1, 2, 3, 4].map((i) => ids.length + i),
    );
    await until('they are counted', async () => (await metric(router, UNKNOWN)) === 5);
  });
}

test('a turn without logprobs does not get those of another that sampled the same', async (t) => {
  const { post } = await startTree(t);
  const sampling_params = { max_new_tokens: 5, temperature: 0 };
  const known = JSON.parse(await post('/generate', { text: 'ten', sampling_params, return_logprob: true })) as {
    text: string;
  };
  const again = JSON.parse(await post('/generate', { text: 'ten', sampling_params })) as { text: string };
  assert.equal(known.text, again.text);
  const { unknown_logprobs: unknown } = JSON.parse(await post('/retrieve_from_text', { text: `ten${again.text}` })) as {
    unknown_logprobs: number[];
  };
  assert.equal(unknown.length, 5, 'the newer turn counts');
});

test('a stop token that a stream of SGLang tells no logprob of is null, 0 in samples with its position', async (t) => {
  const scene = await startChatScene(t, { sim: { meanOutputTokens: 4 } });
  const session = await scene.begin();
  await scene.say(session, [{ role: 'user', content: 'Hello' }], { stream: true, max_tokens: 200 });
  const { inputIds, outputIds } = scene.log.at(-1)!;
  assert.equal(outputIds.at(-1), endOfTurn);
  const [line] = (await exportedBySession(scene.router.url)).get(session)!;
  const at = inputIds.length + outputIds.length - 1;
  assert.deepEqual(
    line!.rollout_log_probs.flatMap((logprob, i) => (logprob === null ? [i] : [])),
    [at],
  );
  const samples = await fetch(`${scene.router.url}/sessions/${session}/samples`, { method: 'POST', body: '{}' });
  const [sample] = readSamples(Buffer.from(await samples.arrayBuffer()));
  assert.equal(sample!.logprobs.at(-1), 0);
  assert.deepEqual((sample!.meta.metadata as { unknown_logprobs: unknown }).unknown_logprobs, [outputIds.length - 1]);
  const { records } = await scene.record(session);
  const [choice] = records[0]!.response.choices as unknown as {
    meta_info: { output_token_logprobs: number[][]; unknown_logprobs: number[] };
  }[];
  assert.equal(choice!.meta_info.output_token_logprobs.at(-1)![0], 0);
  assert.deepEqual(choice!.meta_info.unknown_logprobs, [outputIds.length - 1]);
});
