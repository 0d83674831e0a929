import { deepEqual, equal } from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { post } from '../harness/fleet.ts';
import { send } from '../harness/client.ts';
import { startEngine } from '../harness/engine.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

const PATH = '/skyrl/v1/generate';
const experts = Buffer.from([1, 2, 3, 4]);
/** As SkyRL's server writes it (a956457). */
const ANSWER = JSON.stringify({
  choices: [
    {
      token_ids: [7, 8],
      finish_reason: 'stop',
      logprobs: { content: [{ logprob: -0.5 }, { logprob: -0.25 }] },
      routed_experts: { data: experts.toString('base64'), shape: [2, 1, 2], dtype: 'uint8' },
    },
  ],
});

interface Kept {
  readonly path: string;
  readonly tokens: number[];
  readonly loss_mask: number[];
  readonly rollout_log_probs: number[];
  readonly routed_experts: { file: string; dtype: string; shape: number[] };
}

interface Learned {
  readonly expectedAnswerTokens: number;
  readonly openSessions: number;
}

test('responses of SkyRL\u2019s own path are on record, with their experts; --resume leaves them as they are', async (t) => {
  const engine = await startEngine(t, { onRequest: (asked) => asked.answer(ANSWER) });
  const [tokenizerPath, dataDir] = [temporaryFolder(t), temporaryFolder(t)];
  writeTokenizer(tokenizerPath);
  const options = { workerUrls: [engine.url], tokenizerPath, dataDir, resume: 'on' };
  const router = await startTestRouter(t, { ...options, plugin: ['radix-tree:{"verify":false}'] });
  const asked = { model: 'm', token_ids: [1, 2, 3], sampling_params: { max_tokens: 4, logprobs: 1 } };
  const got = await send(t, router.url, post(PATH, asked, ['x-session-id: s']));
  equal(got.text, ANSWER);
  deepEqual(JSON.parse((await engine.requests[0]!.payload()).toString()), asked);
  await untilIdle(router);
  const { page } = (await (await fetch(`${router.url}/trajectories/s`)).json()) as { page: Kept[] };
  const [turn] = page;
  deepEqual(
    [turn!.path, turn!.tokens, turn!.loss_mask, turn!.rollout_log_probs.slice(-2)],
    [PATH, [1, 2, 3, 7, 8], [0, 0, 0, 1, 1], [-0.5, -0.25]],
  );
  const { file, dtype, shape } = turn!.routed_experts;
  deepEqual([dtype, shape, readFileSync(join(dataDir, file))], ['uint8', [2, 1, 2], experts]);
});

test('rollout: the length of a response with experts says nothing about its tokens', async (t) => {
  const engine = await startEngine(t, {
    onRequest: (asked) => asked.answer(ANSWER.replace(/"data":"/, `$&${'AAAA'.repeat(9_000)}`)),
  });
  const router = await startTestRouter(t, { workerUrls: [engine.url], policy: 'rollout' });
  const learned = async () => {
    const { policies } = (await (await fetch(`${router.url}/policies`)).json()) as { policies: { state: Learned }[] };
    return policies[0]!.state;
  };
  const before = await learned();
  await send(t, router.url, post(PATH, { token_ids: [1] }, ['x-session-id: s']));
  await untilIdle(router);
  const after = await learned();
  deepEqual([after.expectedAnswerTokens, after.openSessions], [before.expectedAnswerTokens, 1]);
});

test('errors have the form that SkyRL reads', async (t) => {
  const router = await startTestRouter(t);
  const got = await send(t, router.url, post(PATH, { token_ids: [1] }));
  equal(got.status, 503);
  equal((JSON.parse(got.text) as { error: { code: string } }).error.code, 'no_available_workers');
});
