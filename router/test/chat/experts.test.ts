import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { writeTokenizer } from '../../src/sim/tokenizer-files.ts';
import { endOfTurn } from '../../src/sim/tokenizer.ts';
import { STREAM_HEAD, startEngine } from '../harness/engine.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

const ids = [300, 301, endOfTurn];
const tensor = Buffer.from(Int32Array.from({ length: 24 }, (_, i) => i * 7).buffer);
const base64 = tensor.toString('base64');
const head = '"id":"x","created":1,"model":"m"';

/** A session before an SGLang that a test writes itself, and the folder where turns are kept. */
async function startSession(t: TestContext) {
  const tokenizerPath = temporaryFolder(t);
  const dataDir = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
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
  return { ask, kept };
}

const choice = `"choices":[{"index":0,"message":{"role":"assistant","content":"b"},"logprobs":null,"finish_reason":"stop"`;

test('routed experts that a client asks for come where a plain call has them, and are kept as raw numbers', async (t) => {
  const { ask, kept } = await startSession(t);
  const { asked, sent, response } = await ask({});
  assert.equal(sent.return_meta_info, undefined);
  const extension = (more: string): string => `"sglext":{"routed_experts":"${base64}"${more}}`;
  asked.answer(`{${head},${choice}}],${extension(`,"output_ids":[[${ids.join(',')}]]`)}}`);
  assert.equal(await (await response).text(), `{${head},${choice}}],${extension('')}}`);
  assert.deepEqual(await kept(), tensor);
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

test('a stream has them in its last event, without the ids that only the router asked for', async (t) => {
  const { ask, kept } = await startSession(t);
  const { asked, response } = await ask({ stream: true });
  const first = `data: {${head},"choices":[{"index":0,"delta":{"content":"b"},"logprobs":null,"finish_reason":"stop"}]}\n\n`;
  const last = (more: string): string =>
    `data: {${head},"choices":[],"sglext":{"routed_experts":"${base64}"${more}}}\n\n`;
  const events = [first, last(`,"output_ids":[[${ids.join(',')}]]`), 'data: [DONE]\n\n'];
  const chunks = events.map((event) => `${event.length.toString(16)}\r\n${event}\r\n`);
  asked.connection.write(`${STREAM_HEAD}${chunks.join('')}0\r\n\r\n`);
  assert.equal(await (await response).text(), `${first}${last('')}data: [DONE]\n\n`);
  assert.deepEqual(await kept(), tensor);
});
