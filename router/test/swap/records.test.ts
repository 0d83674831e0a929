import assert from 'node:assert/strict';
import { test } from 'node:test';
import { writeTokenizer } from '../../src/sim/tokens/tokenizer-files.ts';
import { untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { startSwapScene } from './swap-scene.ts';

interface Line {
  readonly versions: readonly { readonly version: string | null; readonly from: number; readonly to: number }[];
}

const chat = { messages: [{ role: 'user', content: 'Go on' }], max_tokens: 6 };
const completion = { prompt: [400, 401, 402], max_tokens: 6, return_token_ids: true };
const generate = { input_ids: [400, 401, 402], sampling_params: { max_new_tokens: 6 } };
const inference = { token_ids: [400, 401, 402], sampling_params: { max_tokens: 6 } };

for (const [kind, path, body] of [
  ['vllm', '/v1/chat/completions', { ...chat, stream: true }],
  ['vllm', '/v1/completions', { ...completion, stream: true }],
  ['vllm', '/inference/v1/generate', inference],
  ['vllm', '/inference/v1/generate', { ...inference, stream: true }],
  ['sglang', '/v1/chat/completions', { ...chat, stream: true }],
  ['sglang', '/v1/completions', { ...completion, stream: true }],
  ['sglang', '/v1/completions', completion],
  ['sglang', '/generate', { ...generate, stream: true }],
] as const) {
  const how = 'stream' in body ? 'a stream' : 'a whole response';
  test(`${kind} ${path}: ${how} over a swap is on record with the snapshots of its tokens`, async (t) => {
    let held: () => void = () => {};
    const isHeld = new Promise<void>((resolve) => (held = resolve));
    const script = (id: string) => (id.includes('over') ? { ids: [410, 411], holdAt: 4, onHeld: held } : undefined);
    const tokenizerPath = temporaryFolder(t);
    writeTokenizer(tokenizerPath);
    const { post, swap, engines, router, log } = await startSwapScene(
      t,
      [kind],
      { meanOutputTokens: 0, script },
      {
        tokenizerPath,
        plugin: ['chat-sessions', 'radix-tree:{"completions":true}'],
        captureChat: true,
        pluginTimeoutMs: 60_000,
      },
    );
    const ask = async (session: string, id: string): Promise<void> => {
      const response = await post(
        path,
        { ...body, rid: id, request_id: id },
        { 'x-session-id': session, 'x-request-id': id },
      );
      const text = await response.text();
      assert.equal(response.status, 200, text);
    };
    const versions = async (session: string): Promise<string[]> => {
      await untilIdle(router);
      const lines = await (await fetch(`${router.url}/trajectories?format=jsonl&session=${session}`)).text();
      const { versions: spans } = JSON.parse(lines) as Line;
      const start = spans[0]!.from;
      return spans.map(({ version, from, to }) => `${version} ${from - start}-${to - start}`);
    };
    await swap('v1');
    await ask('before', 'before');
    assert.deepEqual(await versions('before'), ['v1 0-6']);
    const asked = ask('over', 'over');
    await isHeld;
    await swap('v2');
    engines[0]!.core.release(() => true);
    await asked;
    assert.deepEqual(await versions('over'), ['v1 0-4', 'v2 4-6']);
    assert.equal(log.at(-1)!.weightVersions.length, 2);
  });
}
