import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { startEngine } from '../harness/engine.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

const IDS = [300, 301, 302];
const base64 = (numbers: Int32Array): string => Buffer.from(numbers.buffer).toString('base64');

interface Page {
  readonly page: readonly {
    readonly tokens: number[];
    readonly indexer_topk: { file: string; shape: number[] };
    readonly routed_experts: { file: string };
  }[];
}

for (const topk of [2, 4_096]) {
  test(`a chat's indexer_topk of ${topk} passes to its client as it was, is on record, and in its sample`, async (t) => {
    let indexer = new Int32Array(0);
    const engine = await startEngine(t);
    engine.onRequest = (request) =>
      void request.payload().then((body) => {
        const { input_ids: prompt } = JSON.parse(body.toString()) as { input_ids: number[] };
        const rows = prompt.length + IDS.length - 1;
        indexer = Int32Array.from({ length: rows * 2 * topk }, (_, i) => i);
        const info = {
          completion_tokens: IDS.length,
          output_token_logprobs: IDS.map((id) => [-0.5, id, null]),
          routed_experts: base64(indexer.subarray(0, rows).slice()),
          indexer_topk: base64(indexer),
          indexer_topk_num_layers: 2,
        };
        const choice = {
          index: 0,
          message: { role: 'assistant', content: 'a' },
          finish_reason: 'stop',
          meta_info: info,
        };
        request.answer(JSON.stringify({ id: 'x', object: 'chat.completion', choices: [choice] }));
      });
    const [tokenizerPath, dataDir] = [temporaryFolder(t), temporaryFolder(t)];
    writeTokenizer(tokenizerPath);
    const plugin = ['chat-sessions:{"verify":false,"engine":"sglang"}'];
    const router = await startTestRouter(t, { workerUrls: [engine.url], tokenizerPath, dataDir, plugin });
    const { session_id: id } = (await (await fetch(`${router.url}/sessions`, { method: 'POST' })).json()) as {
      session_id: string;
    };
    const messages = [{ role: 'user', content: 'Hi' }];
    const asks = { return_meta_info: true, return_routed_experts: true, return_indexer_topk: true };
    const body = JSON.stringify({ model: 'm', messages, ...asks });
    const response = await fetch(`${router.url}/sessions/${id}/v1/chat/completions`, { method: 'POST', body });
    const answer = (await response.json()) as { choices: { meta_info: Record<string, unknown> }[] };
    assert.equal(answer.choices[0]!.meta_info['indexer_topk'], base64(indexer));
    await untilIdle(router);
    const { page } = (await (await fetch(`${router.url}/trajectories/${id}`)).json()) as Page;
    const rows = page[0]!.tokens.length - 1;
    assert.deepEqual(page[0]!.indexer_topk.shape, [rows, 2, topk]);
    assert.ok(readFileSync(join(dataDir, page[0]!.indexer_topk.file)).equals(Buffer.from(indexer.buffer)));
    assert.equal(readFileSync(join(dataDir, page[0]!.routed_experts.file)).length, 4 * rows);
    const samples = Buffer.from(
      await (await fetch(`${router.url}/sessions/${id}/samples`, { method: 'POST' })).arrayBuffer(),
    );
    const head = samples.toString('utf8', 8, 8 + Number(samples.readBigUInt64LE(0)));
    const tensors = JSON.parse(head) as Record<string, { shape: number[] }>;
    assert.deepEqual(tensors['rollout_indexer_topk.0']?.shape, [rows, 2, topk]);
  });
}
