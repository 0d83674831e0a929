// A router that is killed (SIGKILL) loses no turn whose end a client has: the `finish_reason` event, or a whole answer.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { randomInt } from 'node:crypto';
import { test } from 'node:test';
import { seededRandom } from '../../src/kit/rng.ts';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import type { FinishedRecord } from '../../../simulator/src/model/sequence.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { PackingStore } from '../../src/recorder/thread/store/packing-store.ts';
import { SqliteStore } from '../../src/recorder/thread/store/sqlite.ts';
import { startRouterProcess } from '../chaos/router-process.ts';
import { turnsIn } from '../harness/turns.ts';
import { EventReader } from '../harness/stalling-engine.ts';
import { withHeldEnds } from '../harness/held-ends.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

const CHAT = '/v1/chat/completions';
const kinds = { sglang: ['/generate', CHAT], vllm: ['/v1/completions', CHAT] } as const;
const CLIENTS = 12;
const KILLS = 2;
const TURNS_BETWEEN_KILLS = 60;

/** The id that a client gave its call: vLLM writes more around it. */
const callOf = (id: string): string => id.replace(/^(chat)?cmpl-/, '').replace(/-0$/, '');

function bodyOf(path: string, call: string): object {
  const text = `<|im_start|>user\n${call}: what is of ten?<|im_end|>\n<|im_start|>assistant\n`;
  if (path === CHAT) return { model: 'sim', rid: call, max_tokens: 12, messages: [{ role: 'user', content: call }] };
  if (path === '/generate') return { rid: call, text, return_logprob: true, sampling_params: { max_new_tokens: 12 } };
  return { prompt: text, max_tokens: 12, logprobs: 0 };
}

/** Asks, and returns when the end of the answer is here. */
async function ask(url: string, path: string, call: string, isStream: boolean): Promise<void> {
  const headers = { 'x-session-id': call, 'x-request-id': call };
  if (isStream) {
    const reader = await EventReader.open(url + path, bodyOf(path, call), headers);
    await reader.untilFinish();
    // Some go on reading.
    await reader.untilDone().catch(() => {});
    return;
  }
  const init = { method: 'POST', headers, body: JSON.stringify(bodyOf(path, call)) };
  const response = await fetch(url + path, init);
  assert.equal(response.status, 200);
  await response.text();
}

for (const [kind, paths] of Object.entries(kinds)) {
  test(`${kind}: a router that is killed at any moment has the turns of all answers that ended`, async (t) => {
    const seed = randomInt(2 ** 31);
    t.diagnostic(`seed ${seed}`);
    const random = seededRandom(seed);
    const log = new Map<string, FinishedRecord>();
    const engine = await startSimEngine({
      kind: kind as 'sglang' | 'vllm',
      timeScale: 0.02,
      variedSampling: true,
      retokenizationDrift: true,
      meanOutputTokens: 8,
      onFinished: (record) => log.set(callOf(record.requestId), record),
    });
    t.after(() => engine.close());
    const tokenizerPath = temporaryFolder(t);
    writeTokenizer(tokenizerPath);
    const dataDir = temporaryFolder(t);
    const options = ['--tokenizer-path', tokenizerPath, '--data-dir', dataDir, '--capture-chat'];
    options.push('--plugin', 'radix-tree:{"completions":true}', '--health-check-interval-secs', '1');
    const ended = new Set<string>();
    let calls = 0;
    for (let kill = 0; kill < KILLS; kill++) {
      const router = await startRouterProcess(t, [engine.url], options, { env: withHeldEnds });
      await until('chats can be asked for', async () => {
        return ask(router.url, CHAT, `first ${kill}`, false).then(
          () => true,
          () => false,
        );
      });
      let isKilled = false;
      const client = async (): Promise<void> => {
        while (!isKilled) {
          const path = paths[calls % 2]!;
          const call = `c${calls++}`;
          try {
            await ask(router.url, path, call, random() < 0.7).then(() => ended.add(call));
          } catch (error) {
            if (!isKilled) throw error;
          }
        }
      };
      const wanted = ended.size + TURNS_BETWEEN_KILLS + Math.floor(random() * 20);
      const clients = Promise.all(Array.from({ length: CLIENTS }, client));
      await until('some turns have ended', () => ended.size >= wanted);
      isKilled = true;
      router.child.kill('SIGKILL');
      await once(router.child, 'exit');
      await clients;
    }
    const store = new PackingStore(new SqliteStore(dataDir, true));
    t.after(() => store.close());
    for (const call of ended) {
      const { inputIds, outputIds } = log.get(call)!;
      const turns = await turnsIn(store, call);
      assert.deepEqual(
        turns.map(({ ids, finishReason }) => [[...ids], finishReason === null || finishReason === 'abort']),
        [[[...inputIds, ...outputIds], false]],
        `the turn of ${call} (seed ${seed})`,
      );
    }
  });
}
