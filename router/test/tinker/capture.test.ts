import { deepEqual, equal, ok } from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { encode } from '../../../simulator/src/tokens/tokenizer.ts';
import { untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';
import { type SampleJson, TinkerClient, asked, startTinkerScene } from './scene.ts';

interface Line {
  readonly session: string;
  readonly tokens: readonly number[];
  readonly rollout_log_probs: readonly (number | null)[];
  readonly loss_mask: readonly number[];
  readonly versions: readonly { version: string | null; before?: string; after?: string }[];
}

function tokenizer(t: TestContext): string {
  const folder = temporaryFolder(t);
  writeTokenizer(folder);
  return folder;
}

const prompt = encode('the first turn of a trajectory');
const ask = (session: string, seqId: number, tokens: readonly number[], more: object = {}): object =>
  asked(session, seqId, { prompt: { chunks: [{ type: 'encoded_text', tokens }] }, ...more });

async function exported(url: string, headers: Record<string, string> = {}): Promise<Line[]> {
  const response = await fetch(`${url}/trajectories?format=jsonl`, { headers });
  equal(response.status, 200);
  return (await response.text())
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Line);
}

for (const [name, kinds, options] of [
  ['vllm, /v1/completions', ['vllm'], {}],
  ['vllm, /inference/v1/generate', ['vllm'], { tinkerVllmApi: 'generate' }],
  ['sglang', ['sglang'], {}],
  ['both', ['vllm', 'sglang', 'vllm', 'sglang'], {}],
] as const) {
  test(`${name}: samples are trajectories: ids, logprobs and versions of two turns`, async (t) => {
    const { router, client } = await startTinkerScene(t, kinds, {
      plugin: ['radix-tree'],
      tokenizerPath: tokenizer(t),
      ...options,
    });
    const session = await client.samplingSession();
    const expected: { key: string; tokens: number[]; sampled: SampleJson['sequences'][0] }[] = [];
    for (let seq = 0; seq < 6; seq++) {
      const first = (await client.sample(ask(session, seq, [...prompt, 1000 + seq]))).sequences[0]!;
      const second = [...prompt, 1000 + seq, ...first.tokens, ...encode(' and then')];
      const { sequences } = await client.sample(ask(session, seq, second));
      expected.push({ key: `${session}:${seq}`, tokens: [...second, ...sequences[0]!.tokens], sampled: sequences[0]! });
    }
    await untilIdle(router);
    let lines: Line[] = [];
    await until('all is stored', async () => (lines = await exported(router.url)).length === 6);
    for (const { key, tokens, sampled } of expected) {
      const line = lines.find((each) => each.session === key)!;
      deepEqual(line.tokens, tokens);
      const last = line.rollout_log_probs.slice(-sampled.logprobs.length).map((value) => Math.fround(value ?? NaN));
      deepEqual(last, sampled.logprobs);
      ok(line.loss_mask.includes(1));
      // vLLM's /v1/completions names no version: it is what its engine had before and after.
      const isKnown = line.versions.every(
        ({ version, before, after }) => (version ?? (before === after && after)) === 'default',
      );
      ok(line.versions.length > 0 && isKnown, JSON.stringify(line.versions));
    }
  });
}

test('a mixed fleet: an engine of the other kind goes on where one was killed, and the sample is captured', async (t) => {
  const options = { plugin: ['radix-tree'], tokenizerPath: tokenizer(t), policy: 'round_robin' };
  const { router, client, engines } = await startTinkerScene(t, ['vllm', 'sglang'], options, { timeScale: 0.2 });
  const session = await client.samplingSession();
  for (const [dead, seqs] of [[engines[0]!, [0, 1, 2, 3]]] as const) {
    const ids = [];
    for (const seq of seqs) ids.push((await client.get('/asample', ask(session, seq, prompt)))['request_id']);
    await until('both work', () => engines.every((engine) => engine.stats().requests > 0));
    await dead.kill();
    for (const id of ids) equal(((await client.result(id))['sequences'] as unknown[]).length, 1);
  }
  await untilIdle(router);
  await until(
    'all is stored',
    async () => new Set((await exported(router.url)).map((line) => line.session)).size === 4,
  );
});

test('where there are keys, a client finds its own trajectories', async (t) => {
  const options = { plugin: ['radix-tree'], tokenizerPath: tokenizer(t), apiKey: ['tml-one', 'tml-two'] };
  const { router } = await startTinkerScene(t, ['vllm'], options);
  const one = new TinkerClient(router.url, { 'x-api-key': 'tml-one' });
  await one.sample(ask(await one.samplingSession(), 0, prompt));
  await until('it is stored', async () => (await exported(router.url, { 'x-api-key': 'tml-one' })).length === 1);
  deepEqual(await exported(router.url, { 'x-api-key': 'tml-two' }), []);
});
