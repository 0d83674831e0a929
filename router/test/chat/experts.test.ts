import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { endOfTurn } from '../../../simulator/src/tokens/tokenizer.ts';
import { STREAM_HEAD, startEngine } from '../harness/engine.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { readSamples } from '../harness/safetensors.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

const ids = [300, 301, endOfTurn];
const tensorOf = (length: number): Buffer => Buffer.from(Int32Array.from({ length }, (_, i) => i * 7).buffer);
const tensor = tensorOf(24);
const base64 = tensor.toString('base64');
const head = '"id":"x","created":1,"model":"m"';

/** A session before an SGLang that a test writes itself, and the folder where turns are kept. */
async function startSession(t: TestContext) {
  const tokenizerPath = temporaryFolder(t);
  const dataDir = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  writeFileSync(join(tokenizerPath, 'config.json'), JSON.stringify({ num_hidden_layers: 2, num_experts_per_tok: 3 }));
  const engine = await startEngine(t);
  const plugin = ['chat-sessions:{"engine":"sglang","verify":false}'];
  const options = { workerUrls: [engine.url], tokenizerPath, dataDir, plugin, pluginTimeoutMs: 60_000 };
  const router = await startTestRouter(t, options);
  const begun = await fetch(`${router.url}/sessions`, { method: 'POST' });
  const { session_id: session } = (await begun.json()) as { session_id: string };
  const ask = async (more: object) => {
    const body = JSON.stringify({ messages: [{ role: 'user', content: 'a' }], return_routed_experts: true, ...more });
    const response = fetch(`${router.url}/sessions/${session}/v1/chat/completions`, { method: 'POST', body });
    const asked = await engine.next();
    return { asked, sent: JSON.parse((await asked.payload()).toString()) as Record<string, unknown>, response };
  };
  const kept = async (): Promise<Buffer> => {
    await untilIdle(router);
    const response = await fetch(`${router.url}/trajectories/${session}`);
    const { page } = (await response.json()) as { page: { routed_experts: { file: string } | null }[] };
    return readFileSync(join(dataDir, page[0]!.routed_experts!.file));
  };
  const samples = async (body: object) => {
    await untilIdle(router);
    const url = `${router.url}/sessions/${session}/samples`;
    const response = await fetch(url, { method: 'POST', body: JSON.stringify(body) });
    return readSamples(Buffer.from(await response.arrayBuffer()));
  };
  return { ask, kept, samples };
}

const choice = `"choices":[{"index":0,"message":{"role":"assistant","content":"b"},"logprobs":null,"finish_reason":"stop"`;

for (const numbers of [24, 500_000]) {
  test(`${numbers} routed experts that a client asks for come where a plain call has them, and are kept as raw numbers`, async (t) => {
    const { ask, kept } = await startSession(t);
    const { asked, sent, response } = await ask({});
    assert.equal(sent.return_meta_info, undefined);
    const experts = tensorOf(numbers);
    const extension = (more: string): string => `"sglext":{"routed_experts":"${experts.toString('base64')}"${more}}`;
    asked.answer(`{${head},${choice}}],${extension(`,"output_ids":[[${ids.join(',')}]]`)}}`);
    assert.ok((await (await response).text()) === `{${head},${choice}}],${extension('')}}`);
    assert.deepEqual(await kept(), experts);
  });
}

test('a large answer without the ids of its tokens is refused as a small one is', async (t) => {
  const { ask } = await startSession(t);
  const { asked, response } = await ask({});
  asked.answer(`{${head},${choice}}],"more":"${'x'.repeat(100_000)}"}`);
  const refused = await response;
  assert.equal(refused.status, 502);
  assert.match(await refused.text(), /has no token ids/);
});

test('in meta_info they stay, where that was asked for', async (t) => {
  const { ask, kept } = await startSession(t);
  const { asked, sent, response } = await ask({ return_meta_info: true });
  assert.equal(sent.return_output_ids_in_sglext, undefined);
  const logprobs = JSON.stringify(ids.map((id) => [-1, id, null]));
  const info = `"meta_info":{"completion_tokens":3,"output_token_logprobs":${logprobs},"routed_experts":"${base64}"}`;
  const answer = `{${head},${choice},${info}}]}`;
  asked.answer(answer);
  assert.equal(await (await response).text(), answer);
  assert.deepEqual(await kept(), tensor);
});

for (const numbers of [24, 300_000]) {
  test(`a stream has ${numbers} of them in its last event, without the ids that only the router asked for`, async (t) => {
    const { ask, kept } = await startSession(t);
    const { asked, response } = await ask({ stream: true });
    const experts = tensorOf(numbers);
    const first = `data: {${head},"choices":[{"index":0,"delta":{"content":"b"},"logprobs":null,"finish_reason":"stop"}]}\n\n`;
    const last = (more: string): string =>
      `data: {${head},"choices":[],"sglext":{"routed_experts":"${experts.toString('base64')}"${more}}}\n\n`;
    const events = [first, last(`,"output_ids":[[${ids.join(',')}]]`), 'data: [DONE]\n\n'];
    const chunks = events.map((event) => `${event.length.toString(16)}\r\n${event}\r\n`);
    asked.connection.write(`${STREAM_HEAD}${chunks.join('')}0\r\n\r\n`);
    assert.ok((await (await response).text()) === `${first}${last('')}data: [DONE]\n\n`);
    assert.deepEqual(await kept(), experts);
  });
}

test('samples have routed experts: a row for each token but the last, as wide as the model', async (t) => {
  const { ask, samples } = await startSession(t);
  const answerWith = async (rows: number): Promise<number[]> => {
    const { asked, sent, response } = await ask({ messages: [{ role: 'user', content: `a${rows}` }] });
    const tokens = (sent.input_ids as unknown[]).length + ids.length;
    const numbers = Int32Array.from({ length: (tokens - 1 + rows) * 6 }, (_, i) => (i * 7) % 128);
    const data = Buffer.from(numbers.buffer).toString('base64');
    asked.answer(`{${head},${choice}}],"sglext":{"routed_experts":"${data}","output_ids":[[${ids.join(',')}]]}}`);
    await (await response).text();
    return [...numbers];
  };
  const numbers = await answerWith(0);
  // Not those of all tokens: a client that asks for some of the rows has to put them together itself.
  await answerWith(-1);
  const [whole, other] = await samples({});
  const { length } = whole!.tokens;
  assert.deepEqual(whole!.experts, { shape: [length - 1, 2, 3], numbers });
  assert.deepEqual(whole!.meta.nulls, ['rollout_indexer_topk']);
  assert.equal(other!.experts, null);
  assert.deepEqual(other!.meta.nulls, ['rollout_routed_experts', 'rollout_indexer_topk']);

  const [cut] = await samples({ max_seq_len: length - 1, metadata: { reward: 0.5, task: 'x' } });
  assert.deepEqual(cut!.experts, { shape: [length - 2, 2, 3], numbers: numbers.slice(0, -6) });
  assert.equal(cut!.meta.reward, 0.5);
  assert.equal((cut!.meta.metadata as { task: string }).task, 'x');
  assert.deepEqual(await samples({ max_seq_len: 1 }), []);
});
