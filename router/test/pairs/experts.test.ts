import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import type { RouterOptions } from '../harness/router.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

const MOE = { experts: 64, layers: 4, denseLayers: 1, expertsPerToken: 2 };

/** Asks for a JSON text, of an engine or of the router. */
type Ask = (path: string, body: object) => Promise<string>;

/** A simulated pair behind a router, and an engine that computes prompt and response itself. */
async function startMoePair(t: TestContext, options: RouterOptions = {}, prefillHas: Partial<SimOptions> = {}) {
  const start = async (own: Partial<SimOptions>): Promise<string> => {
    const engine = await startSimEngine({ timeScale: 0, meanOutputTokens: 0, ...MOE, ...own });
    t.after(() => engine.close());
    return engine.url;
  };
  const alone = await start({});
  const prefill = [await start({ disaggregationMode: 'prefill', ...prefillHas })];
  const decode = [await start({ disaggregationMode: 'decode' })];
  const router = await startTestRouter(t, { pdDisaggregation: true, prefill, decode, ...options });
  const askOf =
    (url: string): Ask =>
    async (path, body) => {
      const headers = { 'content-type': 'application/json', 'x-session-id': 's' };
      const response = await fetch(url + path, { method: 'POST', headers, body: JSON.stringify(body) });
      assert.equal(response.status, 200);
      return response.text();
    };
  return { router, alone: askOf(alone), pair: askOf(router.url) };
}

/** Of each response, in their order. */
const expertsIn = (text: string): Buffer[] =>
  Array.from(text.matchAll(/"routed_experts":"([^"]+)"/g), ([, base64]) => Buffer.from(base64!, 'base64'));

/** A difference of long ones would take minutes to show. */
function assertSame(experts: readonly Buffer[], own: readonly Buffer[]): void {
  assert.deepEqual(
    experts.map(({ length }) => length),
    own.map(({ length }) => length),
  );
  for (const [i, each] of experts.entries()) assert.ok(each.equals(own[i]!), each.toString('hex', 0, 80));
}

const sampling = { temperature: 0, max_new_tokens: 5, ignore_eos: true };
const openai = { model: 'sim', temperature: 0, max_tokens: 5, return_routed_experts: true };
const messages = [{ role: 'user', content: 'What is the name of the moon?' }];
const text = 'The quick brown fox jumps over the lazy dog.';
const generate = { sampling_params: sampling, return_routed_experts: true };
const requests: readonly [name: string, path: string, body: object, count: number][] = [
  ['a prompt', '/generate', { ...generate, text }, 1],
  ['a prompt of ids', '/generate', { ...generate, input_ids: [10, 20, 30, 40] }, 1],
  ['a batch', '/generate', { ...generate, text: [text, 'Left.', 'Sort a list.'] }, 3],
  ['with log probabilities', '/generate', { ...generate, text, return_logprob: true, logprob_start_len: 0 }, 1],
  ['without the first rows', '/generate', { ...generate, text, routed_experts_start_len: 3 }, 1],
  ['without rows of the prompt', '/generate', { ...generate, input_ids: [10, 20], routed_experts_start_len: 2 }, 1],
  ['a long prompt', '/generate', { ...generate, text: text.repeat(300) }, 1],
  ['a completion', '/v1/completions', { ...openai, prompt: text }, 1],
  ['a chat', '/v1/chat/completions', { ...openai, messages }, 1],
];
for (const [name, path, body, count] of requests) {
  for (const stream of [false, true]) {
    test(`${path}, ${name}, ${stream ? 'streamed' : 'whole'}: routed experts as of one engine`, async (t) => {
      const { router, alone, pair } = await startMoePair(t);
      const own = expertsIn(await alone(path, { ...body, stream }));
      assert.equal(own.length, count);
      assertSame(expertsIn(await pair(path, { ...body, stream })), own);
      await untilIdle(router);
    });
  }
}

test('a chat with meta_info, and a list of completions: as of one engine', async (t) => {
  const { alone, pair } = await startMoePair(t);
  for (const [path, body] of [
    ['/v1/chat/completions', { ...openai, messages, return_meta_info: true, logprobs: true }],
    ['/v1/completions', { ...openai, prompt: [text, 'Left.'] }],
  ] as const) {
    const own = expertsIn(await alone(path, body));
    assert.equal(own.length, 1);
    assertSame(expertsIn(await pair(path, body)), own);
  }
});

test('of a prefill engine that returns none, those of the prompt are not known: null', async (t) => {
  const { pair } = await startMoePair(t, {}, { experts: 0 });
  const whole = JSON.parse(await pair('/generate', { ...generate, text })) as { meta_info: Record<string, unknown> };
  assert.equal(whole.meta_info['routed_experts'], null);
  const chat = JSON.parse(await pair('/v1/chat/completions', { ...openai, messages })) as { sglext: object };
  assert.deepEqual(chat.sglext, { routed_experts: null });
  const stream = await pair('/generate', { ...generate, text, stream: true });
  assert.match(stream, /"routed_experts":null/);
});

const rolloutFields = ['rollout-fields:{"engine":"sglang","layers":4,"moeLayers":"1-3","expertsPerToken":2}'];
const askMatrices = { ...openai, return_routed_experts: false, logprobs: true, include_routing_matrix: true, messages };

/** Of uint8, without the layer that has no experts. */
function matricesOf(experts: Buffer): string[] {
  const [perRow, dense] = [MOE.layers * MOE.expertsPerToken, MOE.denseLayers * MOE.expertsPerToken];
  const numbers = Array.from({ length: experts.length / 4 }, (_, i) => experts.readInt32LE(4 * i));
  return Array.from({ length: numbers.length / perRow }, (_, row) =>
    Buffer.from(numbers.slice(row * perRow + dense, (row + 1) * perRow)).toString('base64'),
  );
}

/** The matrices of a response with rollout fields, in their order. */
const matricesIn = (response: string): string[] =>
  Array.from(response.matchAll(/"routing_matrix":"([^"]*)"/g), ([, base64]) => base64!);

test('rollout fields: the matrices of prompt and response are as of one engine', async (t) => {
  const { alone, router, pair } = await startMoePair(t, { plugin: rolloutFields });
  for (const more of [{}, { stream: true }, { echo: true }]) {
    const matrices = matricesIn(await pair('/v1/chat/completions', { ...askMatrices, ...more })).filter(
      (each) => each !== '',
    );
    const [experts] = expertsIn(await alone('/v1/chat/completions', { ...openai, messages }));
    const rows = matricesOf(experts!);
    assert.ok(matrices.length >= 5);
    assert.deepEqual(matrices, rows.slice(-matrices.length));
  }
  await untilIdle(router);
});

test('rollout fields: no matrices are made of rows that are not known', async (t) => {
  const { router } = await startMoePair(t, { plugin: rolloutFields }, { experts: 0 });
  for (const stream of [false, true]) {
    const body = JSON.stringify({ ...askMatrices, stream });
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${router.url}/v1/chat/completions`, { method: 'POST', headers, body });
    const code = response.headers.get('x-turnout-error');
    assert.deepEqual([response.status, code], [501, 'not_returned_by_engine']);
    assert.match(await response.text(), /no routed experts/);
  }
  await untilIdle(router);
});

test('records have the experts of the prefill engine for the prompt', async (t) => {
  const [tokenizerPath, dataDir] = [temporaryFolder(t), temporaryFolder(t)];
  writeTokenizer(tokenizerPath);
  const { alone, router, pair } = await startMoePair(t, { tokenizerPath, dataDir, plugin: ['radix-tree'] });
  const body = { ...generate, text, return_logprob: true };
  const [own] = expertsIn(await alone('/generate', body));
  for (const stream of [false, true]) await pair('/generate', { ...body, stream });
  let page: { routed_experts: { file: string } | null }[] = [];
  await until('the turns are on record', async () => {
    const response = await fetch(`${router.url}/trajectories/s`);
    if (response.status === 200) ({ page } = (await response.json()) as { page: typeof page });
    return page.length === 2;
  });
  const records = page.map(({ routed_experts: kept }) => readFileSync(join(dataDir, kept!.file)));
  assertSame(records, [own!, own!]);
});
