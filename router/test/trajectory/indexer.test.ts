import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { encode } from '../../../simulator/src/tokens/tokenizer.ts';
import { startEngine } from '../harness/engine.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

const TEXT = 'One two three.';
const IDS = encode(TEXT);
const PROMPT = encode('Say it.');
const ROWS = PROMPT.length + IDS.length - 1;
/** A row for each token but the last, of 2 layers with 3 tokens each. */
const indexer = Int32Array.from({ length: ROWS * 2 * 3 }, (_, i) => i);
const experts = Int32Array.from({ length: ROWS * 4 }, (_, i) => 7 * i);
const base64 = (numbers: Int32Array): string => Buffer.from(numbers.buffer).toString('base64');

/** As SGLang answers with `return_indexer_topk` and `return_routed_experts`. */
const answer = JSON.stringify({
  text: TEXT,
  output_ids: IDS,
  meta_info: {
    finish_reason: { type: 'stop' },
    prompt_tokens: PROMPT.length,
    completion_tokens: IDS.length,
    output_token_logprobs: IDS.map((id, i) => [-i / 8, id, null]),
    routed_experts: base64(experts),
    indexer_topk: base64(indexer),
    indexer_topk_num_layers: 2,
  },
});

interface Kept {
  readonly page: readonly {
    readonly routed_experts: { file: string; shape: number[] | null };
    readonly indexer_topk: { file: string; bytes: number; shape: number[] | null };
  }[];
}

test('indexer_topk is a file beside the routed experts, in exports too, and goes with its turn', async (t) => {
  const engine = await startEngine(t);
  engine.onRequest = (request) => void request.whole.then(() => request.answer(answer));
  const [tokenizerPath, dataDir] = [temporaryFolder(t), temporaryFolder(t)];
  writeTokenizer(tokenizerPath);
  const plugin = ['radix-tree:{"verify":false}'];
  const router = await startTestRouter(t, { workerUrls: [engine.url], tokenizerPath, dataDir, plugin });
  const body = JSON.stringify({ input_ids: PROMPT, return_indexer_topk: true, return_logprob: true });
  const headers = { 'x-session-id': 's' };
  const response = await fetch(`${router.url}/generate`, { method: 'POST', headers, body });
  assert.equal(await response.text(), answer, 'its client has the answer as it was');
  await untilIdle(router);

  const { page } = (await (await fetch(`${router.url}/trajectories/s`)).json()) as Kept;
  const [{ routed_experts: routed, indexer_topk: indexed }] = page as [Kept['page'][number]];
  assert.deepEqual([indexed.bytes, indexed.shape], [indexer.byteLength, [ROWS, 2, 3]]);
  assert.ok(readFileSync(join(dataDir, indexed.file)).equals(Buffer.from(indexer.buffer)));
  assert.ok(readFileSync(join(dataDir, routed.file)).equals(Buffer.from(experts.buffer)));

  const file = Buffer.from(await (await fetch(`${router.url}/trajectories?format=safetensors`)).arrayBuffer());
  const head = 8 + Number(file.readBigUInt64LE(0));
  const tensors = JSON.parse(file.toString('utf8', 8, head)) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  const read = (name: string) => {
    const {
      dtype,
      shape,
      data_offsets: [from, to],
    } = tensors[name]!;
    return { dtype, shape, bytes: file.subarray(head + from, head + to) };
  };
  const topk = read('indexer_topk');
  assert.deepEqual([topk.dtype, topk.shape], ['I32', [ROWS, 2, 3]]);
  assert.ok(topk.bytes.equals(Buffer.from(indexer.buffer)));
  assert.ok(read('routed_experts').bytes.equals(Buffer.from(experts.buffer)));
  const ends = read('indexer_topk_offsets').bytes;
  assert.deepEqual([ends.readBigInt64LE(0), ends.readBigInt64LE(8)], [0n, BigInt(ROWS)]);

  await fetch(`${router.url}/trajectories/s`, { method: 'DELETE' });
  assert.deepEqual([existsSync(join(dataDir, indexed.file)), existsSync(join(dataDir, routed.file))], [false, false]);
});
