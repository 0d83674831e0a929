import assert from 'node:assert/strict';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import OpenAI from 'openai';
import { type Environment, whyMissing } from './environments.ts';
import { type Said, type Scene, startScene } from './scene.ts';

/** The real Fireworks SDK, and the OpenAI SDKs during its hot loads, against simulated engines of both kinds. */

const script = join(import.meta.dirname, 'hot_loader.py');
const streams = join(import.meta.dirname, 'openai_streams.py');
/** The SDK polls every 5 s. */
const POLL_MS = 100;
const MODEL = 'accounts/acct/models/sim';

const of = (said: readonly Said[], step: string): Said[] => said.filter((line) => line.step === step);

async function start(t: TestContext, kind: 'vllm' | 'sglang', flags: readonly string[] = []): Promise<Scene> {
  const scene = await startScene(t, {
    kind,
    engines: 2,
    api: 'fireworks',
    sim: { timeScale: 1, stepBaseMs: 5, weightLoadMs: 200, meanOutputTokens: 0 },
    flags: ['--swap-snapshots', '/snapshots/{identity}', '--plugin', 'rollout-fields', ...flags],
  });
  // Before that every request is 503.
  while (!(await fetch(`${scene.url}/readiness`)).ok) await pause(POLL_MS);
  return scene;
}

/** Hot-loads snapshots as the SDK does, until the programs have ended, or so many. @returns how many */
async function loadDuring(
  scene: Scene,
  programs: Promise<unknown>,
  first: Promise<unknown>,
  atMost = Infinity,
): Promise<number> {
  let isOver = false;
  const over = programs.finally(() => (isOver = true));
  over.catch(() => {});
  await first;
  let count = 0;
  while (!isOver && count < atMost) {
    const identity = `stream-${++count}`;
    const url = `${scene.url}/hot_load/v1/models/hot_load`;
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ identity, reset_prompt_cache: true }),
    });
    assert.equal(response.status, 200);
    for (let isLoaded = false; !isLoaded;) {
      await pause(POLL_MS);
      const { replicas } = (await (await fetch(url)).json()) as { replicas: Record<string, unknown>[] };
      isLoaded = replicas[0]!['readiness'] === true && replicas[0]!['current_snapshot_identity'] === identity;
    }
  }
  return count;
}

const missing = async (...environments: Environment[]): Promise<string | false> => {
  for (const environment of environments) {
    const why = await whyMissing(environment);
    if (why !== false) return why;
  }
  return false;
};

for (const kind of ['vllm', 'sglang'] as const) {
  test(
    `the Fireworks SDK hot-loads ${kind} engines and samples from them`,
    { skip: await missing('fireworks') },
    async (t) => {
      const scene = await start(t, kind);
      const run = (...args: string[]): Promise<Said[]> => scene.run('fireworks', args, script);
      const said = await run('deployed', 'hot_load', 'syncer', 'rollouts', '--transition', 'SYNC');
      const [deployed] = of(said, 'deployed') as unknown as { account: string; attached: Record<string, unknown> }[];
      assert.equal(deployed!.attached['state'], 'READY');
      assert.equal(deployed!.attached['hot_load_transition_type'], 'SYNC');
      assert.equal(deployed!.attached['hot_load_trainer_job'], `accounts/${deployed!.account}/rlorTrainerJobs/job`);
      assert.deepEqual(
        of(said, 'hot_load').map(({ identity, is_loaded: isLoaded }) => [identity, isLoaded]),
        [
          ['v1', true],
          ['v2', true],
        ],
      );
      for (const replica of of(said, 'hot_load')[1]!['replicas'] as Record<string, unknown>[])
        assert.deepEqual([replica['readiness'], replica['current_snapshot_identity']], [true, 'v2']);
      assert.equal(of(said, 'warm')[0]!['is_warm'], true);
      assert.equal(of(said, 'synced')[0]!['snapshot'], 'sync-1-base');
      const sampled = of(said, 'sampled');
      assert.equal(sampled.length, 8);
      for (const { finish_reason: reason, prompt, tokens, logprobs, request_id: id, concurrent, attempts } of sampled) {
        assert.deepEqual([reason, attempts], ['length', 1]);
        assert.match(id as string, /^rollout-\d$/);
        assert.ok((concurrent as number) > 0);
        assert.equal((logprobs as number[]).length, 64);
        const served = scene.served.filter(({ inputIds }) => JSON.stringify(inputIds) === JSON.stringify(prompt));
        assert.deepEqual(
          served.map(({ outputIds }) => outputIds),
          [tokens],
        );
      }
      const refused = of(await run('failing'), 'refused');
      assert.match(refused[0]!['error'] as string, /501/);
    },
  );

  test(
    `streams of the SDKs go on while ${kind} engines are hot-loaded`,
    { skip: await missing('fireworks', 'openai') },
    async (t) => {
      const scene = await start(t, kind);
      const began = Promise.withResolvers<void>();
      const client = new OpenAI({ apiKey: 'fw-key', baseURL: `${scene.url}/inference/v1`, maxRetries: 0 });
      const nodeStream = async (index: number): Promise<string | null> => {
        const stream = await client.chat.completions.create({
          model: MODEL,
          messages: [{ role: 'user', content: `tale ${index}` }],
          max_tokens: 400,
          stream: true,
        });
        let reason: string | null = null;
        for await (const chunk of stream) {
          began.resolve();
          reason = chunk.choices[0]?.finish_reason ?? reason;
        }
        return reason;
      };
      const programs = Promise.all([
        scene.run('openai', [], streams),
        scene.run('fireworks', ['rollouts', '--tokens', '400', '--count', '16'], script),
        Promise.all(Array.from({ length: 16 }, (_, i) => nodeStream(i))),
      ]);
      const swaps = await loadDuring(scene, programs, began.promise);
      const [python, fireworks, node] = await programs;
      assert.ok(swaps > 1, `${swaps} swaps`);
      assert.deepEqual(node, Array(16).fill('length'));
      assert.deepEqual(
        of(python, 'stream').map(({ finish_reason: reason }) => reason),
        Array(16).fill('length'),
      );
      assert.deepEqual(
        of(fireworks, 'sampled').map(({ finish_reason: reason, tokens }) => [reason, (tokens as number[]).length]),
        Array.from({ length: 16 }, () => ['length', 400]),
      );
    },
  );

  test(
    `with the sync transition the SDKs retry until ${kind} engines are loaded`,
    { skip: await missing('fireworks', 'openai') },
    async (t) => {
      const scene = await start(t, kind, ['--swap-transition', 'sync']);
      const url = `${scene.url}/hot_load/v1/models/hot_load`;
      const client = new OpenAI({ apiKey: 'fw-key', baseURL: `${scene.url}/inference/v1`, maxRetries: 30 });
      const programs = Promise.all([
        scene.run('openai', ['--retries', '30', '--tokens', '40', '--count', '8'], streams),
        scene.run('fireworks', ['rollouts', '--tokens', '40'], script),
        client.completions.create({ model: MODEL, prompt: 'a', max_tokens: 40 }),
      ]);
      const swaps = await loadDuring(scene, programs, fetch(url), 3);
      const [python, fireworks] = await programs;
      assert.ok(swaps > 0);
      assert.equal(of(python, 'stream').length, 8);
      assert.equal(of(fireworks, 'sampled').length, 8);
    },
  );
}
