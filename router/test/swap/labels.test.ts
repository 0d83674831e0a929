import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { test } from 'node:test';
import type { FinishedRecord } from '../../../simulator/src/model/sequence.ts';
import { until } from '../harness/within.ts';
import { MODEL, type SwapScene, eventsOf, startSwapScene } from './swap-scene.ts';
import { often } from '../harness/often.ts';

interface Chunk {
  readonly model: string;
  readonly choices: readonly {
    readonly logprobs?: {
      readonly token_logprobs?: readonly number[];
      readonly content?: readonly { readonly logprob: number }[] | null;
    } | null;
    readonly finish_reason?: string | null;
  }[];
}

const PREFIX = `${MODEL}@`;

/** What a client got: the logprob of each token, which identify the tokens, and the snapshot that its chunk names. */
interface Streamed {
  readonly logprobs: number[];
  readonly labels: string[];
  finish: string;
}

async function stream({ post }: SwapScene, path: string, body: object): Promise<Streamed> {
  const response = await post(path, { model: MODEL, stream: true, ...body });
  assert.equal(response.status, 200);
  const got: Streamed = { logprobs: [], labels: [], finish: '' };
  for await (const event of eventsOf(response)) {
    const { model, choices } = event as unknown as Chunk;
    assert.ok(model.startsWith(PREFIX), JSON.stringify(event));
    for (const { logprobs, finish_reason: reason } of choices) {
      const own = logprobs?.token_logprobs ?? logprobs?.content?.map(({ logprob }) => logprob) ?? [];
      got.logprobs.push(...own);
      got.labels.push(...own.map(() => model.slice(PREFIX.length)));
      got.finish ||= reason ?? '';
    }
  }
  return got;
}

/** The snapshot that sampled each token, as the engine knows it. */
const truth = ({ weightVersions, outputIds }: FinishedRecord): string[] =>
  outputIds
    .map((_, i) => weightVersions.find(({ start, end }) => start <= i && i < end)!.version)
    .map((version) => (version === 'default' ? 'base' : version));

const prompts = (i: number): { path: string; body: object } =>
  i % 2 === 0
    ? { path: '/inference/v1/completions', body: { prompt: [400 + (i % 500), 401, 402], logprobs: 1 } }
    : {
        path: '/inference/v1/chat/completions',
        body: { messages: [{ role: 'user', content: `Say ${i}` }], logprobs: true },
      };

const STREAMS = often(60, 200);
const SWAPS = often(8, 20);

test(`over ${SWAPS} swaps each chunk of ${STREAMS} streams names the snapshot that sampled its tokens`, async (t) => {
  const kinds = ['vllm', 'sglang', 'vllm', 'sglang'] as const;
  const scene = await startSwapScene(t, kinds, { meanOutputTokens: 0, timeScale: 6, weightLoadMs: 5 });
  let isOver = false;
  let next = 0;
  const all: Streamed[] = [];
  const client = async (): Promise<void> => {
    do {
      const { path, body } = prompts(next);
      const max_tokens = 20 + (next++ % 7) * 7;
      const got = await stream(scene, path, { ...body, max_tokens });
      assert.equal(got.logprobs.length, max_tokens);
      assert.equal(got.finish, 'length');
      all.push(got);
    } while (!isOver);
  };
  const clients = Array.from({ length: STREAMS }, client);
  for (let i = 1; i <= SWAPS; i++) await scene.swap(`v${i}`, { reset: i % 2 === 0 ? 'none' : 'all' });
  isOver = true;
  await Promise.all(clients);
  const records = Map.groupBy(scene.log, ({ logprobs }) => logprobs.join());
  let crossing = 0;
  for (const { logprobs, labels } of all) {
    const own = records.get(logprobs.join()) ?? [];
    const found = own.findIndex((record) => truth(record).join() === labels.join());
    assert.ok(found >= 0, `${labels.join()}; engines: ${own.map((each) => truth(each).join()).join(' | ')}`);
    own.splice(found, 1);
    if (new Set(labels).size > 1) crossing++;
  }
  assert.equal(all.length, scene.log.length);
  assert.ok(crossing > 5 * SWAPS, `${crossing} streams crossed a swap`);
});

const modelOf = async (response: Response): Promise<string> => {
  const text = await response.text();
  assert.equal(response.status, 200, text);
  return (JSON.parse(text.replace(/^data: /, '').split('\n')[0]!) as { model: string }).model;
};

for (const kind of ['vllm', 'sglang'] as const) {
  test(`${kind}: whole responses and streams name the snapshot, by the name that the client used`, async (t) => {
    const { post, swap } = await startSwapScene(t, [kind]);
    const body = { prompt: 'a', max_tokens: 1, model: MODEL };
    const models = async (more: object, headers = {}): Promise<string[]> => [
      await modelOf(await post('/inference/v1/completions', { ...body, ...more }, headers)),
      await modelOf(await post('/inference/v1/completions', { ...body, ...more, stream: true }, headers)),
    ];
    assert.deepEqual(await models({}), [`${MODEL}@base`, `${MODEL}@base`]);
    await swap('v1');
    assert.deepEqual(await models({}), [`${MODEL}@v1`, `${MODEL}@v1`]);
    assert.deepEqual(await models({ model: `${MODEL}@base` }), [`${MODEL}@v1`, `${MODEL}@v1`], 'a label sent back');
    assert.deepEqual(await models({ model: 'sim' }), ['sim@v1', 'sim@v1'], 'the path is of Fireworks');
  });

  test(`${kind}: clients that name no deployment keep their model name, and get the header`, async (t) => {
    const { post, swap } = await startSwapScene(t, [kind]);
    await swap('v1');
    const body = { prompt: 'a', max_tokens: 1, model: 'sim' };
    for (const stream of [false, true]) {
      const response = await post('/v1/completions', { ...body, stream });
      assert.equal(response.headers.get('x-turnout-snapshot'), 'v1');
      assert.equal(await modelOf(response), 'sim');
      const named = await post('/v1/completions', { ...body, stream }, { 'fireworks-model': MODEL });
      assert.equal(await modelOf(named), 'sim@v1');
    }
    const path = kind === 'vllm' ? '/inference/v1/generate' : '/generate';
    const ids = { token_ids: [400], input_ids: [400], sampling_params: {} };
    const generated = await post(path, ids, { 'fireworks-model': MODEL });
    assert.equal(generated.headers.get('x-turnout-snapshot'), 'v1');
    assert.doesNotMatch(await generated.text(), /@v1/, 'other APIs say it in their own way');
  });
}

test('a whole response over a swap has both snapshots in its header, and the last one in its model', async (t) => {
  let held: () => void = () => {};
  const isHeld = new Promise<void>((resolve) => (held = resolve));
  const script = () => ({ ids: [400, 401], holdAt: 2, onHeld: held });
  const { post, swap, engines } = await startSwapScene(t, ['vllm'], { script });
  const asked = post('/inference/v1/completions', { prompt: 'a', max_tokens: 4, model: MODEL });
  await isHeld;
  await swap('v1');
  engines[0]!.core.release(() => true);
  const response = await asked;
  assert.equal(response.headers.get('x-turnout-snapshot'), 'base, v1');
  assert.equal(await modelOf(response), `${MODEL}@v1`);
});

for (const kind of ['vllm', 'sglang'] as const) {
  test(`${kind}: a client that does not read gets the labels of the time at which its tokens were sampled`, async (t) => {
    const script = () => ({ ids: [], holdAt: 8_000 });
    const options = { meanOutputTokens: 0, timeScale: 0.01, weightLoadMs: 50_000, maxModelTokens: 100_000, script };
    const { swap, engines, router, log } = await startSwapScene(t, [kind], options);
    const body = JSON.stringify({ model: MODEL, prompt: [400, 401], max_tokens: 9_000, stream: true, logprobs: 20 });
    const { hostname, port } = new URL(router.url);
    const socket = connect({ host: hostname, port: Number(port) });
    t.after(() => socket.destroy());
    socket.write(
      `POST /inference/v1/completions HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    );
    socket.pause();
    const { core } = engines[0]!;
    await until('the engine has sampled more than all buffers hold', () => core.scheduler.resting.length === 1);
    await swap('v1');
    core.release(() => true);
    const parts: Buffer[] = [];
    socket.on('data', (bytes: Buffer) => parts.push(bytes));
    socket.resume();
    await new Promise((resolve) => socket.once('close', resolve));
    const labels: string[] = [];
    for (const [, json] of Buffer.concat(parts)
      .toString()
      .matchAll(/^data: (\{.*\})$/gm)) {
      const { model, choices } = JSON.parse(json!) as Chunk;
      for (const { logprobs } of choices) {
        for (const _ of logprobs?.token_logprobs ?? []) labels.push(model.slice(PREFIX.length));
      }
    }
    const wanted = truth(log[0]!);
    const from = wanted.indexOf('v1');
    assert.ok(from > 6_000 && from < 9_000, `the swap came after ${from} tokens`);
    assert.equal(labels.length, wanted.length);
    assert.equal(labels.indexOf('v1'), from);
    assert.equal(labels.lastIndexOf('base'), from - 1);
  });
}

test('a whole response whose engine names other weights has no label, and its engine is checked', async (t) => {
  const { post, swap, engines, router } = await startSwapScene(t, ['sglang']);
  const [{ core }] = engines as [(typeof engines)[number]];
  await swap('v1');
  // After a swap the router asks for the name. Asked later, the engine would be found out before its answer is.
  await until('the engine was asked for its name', () => router.fleet.workers[0]!.weightVersion === 'v1');
  await core.loadWeights('/elsewhere', 'v2');
  const ask = async (): Promise<string> =>
    modelOf(await post('/inference/v1/completions', { prompt: 'a', max_tokens: 1, model: MODEL }));
  assert.equal(await ask(), 'sim');
  await until('the weights of the fleet are loaded again', () => core.weightVersion === 'v1');
  await until('it serves', () => router.fleet.eligible.length === 1);
  assert.equal(await ask(), `${MODEL}@v1`);
});

test('with configured deployments the responses to their requests are labelled, and no others', async (t) => {
  const deployment = 'accounts/acct/deployments/dep';
  const deployments = [{ deployment, model: MODEL, snapshots: '/snapshots/{identity}' }];
  const { post, swap } = await startSwapScene(t, ['vllm'], {}, { swapSnapshots: undefined, deployments });
  await swap('v1');
  const named = async (model: string, headers = {}): Promise<string> =>
    modelOf(await post('/v1/completions', { prompt: 'a', max_tokens: 1, model }, headers));
  assert.equal(await named(MODEL), `${MODEL}@v1`);
  assert.equal(await named(deployment), `${deployment}@v1`);
  assert.equal(await named(`${MODEL}#${deployment}`), `${MODEL}@v1`);
  assert.equal(await named('sim', { 'fireworks-deployment': deployment }), 'sim@v1');
  assert.equal(await named('sim'), 'sim');
  assert.equal(await named('sim', { 'fireworks-deployment': 'accounts/acct/deployments/other' }), 'sim');
  assert.equal(await named('accounts/acct/models/other'), 'sim', 'of no deployment');
});
