import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { type TestContext, test } from 'node:test';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import { deadUrl } from '../harness/engine.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { startTrainerStub } from '../tinker/trainer-stub.ts';
import { turnout } from './turnout.ts';

async function doctor(
  t: TestContext,
  url: string,
  ...args: string[]
): Promise<{ code: number | null; tinker: string[] }> {
  const run = turnout(t, [
    'doctor',
    '--port',
    '0',
    '--prometheus-port',
    '0',
    '--tinker',
    '--worker-urls',
    url,
    ...args,
  ]);
  const code = await run.ended;
  const lines = run.output().split('\n');
  return { code, tinker: lines.filter((line) => /Tinker:|tinker-|trainer/.test(line)).map((line) => line.trim()) };
}

async function sim(t: TestContext, options: Partial<SimOptions>): Promise<string> {
  const engine = await startSimEngine({ timeScale: 0, ...options });
  t.after(() => engine.close());
  return engine.url;
}

/** An engine in front of which fields of requests are lost. */
async function without(t: TestContext, url: string, ...fields: string[]): Promise<string> {
  const server = createServer(async (request, response) => {
    const { method = 'GET', url: target = '' } = request;
    const text = (await buffer(request)).toString();
    const body = text === '' ? {} : (JSON.parse(text) as Record<string, unknown>);
    for (const field of fields) delete body[field];
    const answer = await fetch(url + target, { method, ...(text === '' ? {} : { body: JSON.stringify(body) }) });
    response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type') ?? 'text/plain' });
    response.end(Buffer.from(await answer.arrayBuffer()));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

for (const [kind, path, api] of [
  ['vllm', '/v1/completions', 'completions'],
  ['vllm', '/inference/v1/generate', 'generate'],
  ['sglang', '/generate', 'completions'],
] as const) {
  test(`doctor --tinker: nothing is missing at ${kind} by ${path}`, async (t) => {
    const { code, tinker } = await doctor(t, await sim(t, { kind }), '--tinker-vllm-api', api);
    assert.equal(code, 0);
    assert.equal(tinker.length, 4);
    assert.ok(tinker.every((line) => line.startsWith('ok')));
    assert.ok(tinker[0]!.includes(`${path} samples from prompts of token ids`));
  });
}

for (const [kind, flag] of [
  ['vllm', 'VLLM_ALLOW_RUNTIME_LORA_UPDATING'],
  ['sglang', '--enable-lora'],
] as const) {
  test(`doctor --tinker: ${kind} without LoRA is a problem where there are weights to load, else a note`, async (t) => {
    const url = await sim(t, { kind, loraLoading: false });
    const { code, tinker } = await doctor(t, url);
    assert.equal(code, 0);
    assert.match(tinker.at(-1)!, new RegExp(`^note .*does not load LoRA adapters.*${flag}`));
    const weights = join(temporaryFolder(t), '{model_id}', '{checkpoint}');
    const { code: failed, tinker: lines } = await doctor(t, url, '--tinker-weights', weights);
    assert.equal(failed, 1);
    assert.match(lines.at(-1)!, /^PROBLEM .*does not load LoRA adapters/);
    assert.match(lines[0]!, /^ok .*exists \(--tinker-weights\)/);
  });
}

test('doctor --tinker: too few alternatives are a note that names the option', async (t) => {
  const { code, tinker } = await doctor(t, await sim(t, { kind: 'vllm', maxLogprobs: 5 }));
  assert.equal(code, 0);
  assert.match(tinker[1]!, /^ok .*returns logprobs of prompts/);
  assert.match(tinker[2]!, /^note .*topk_prompt_logprobs=20 fails: .* greater than max allowed: 5.*--max-logprobs 20/);
});

test('doctor --tinker: an engine that returns no logprobs of prompts, and one that returns no ids', async (t) => {
  const url = await sim(t, { kind: 'vllm' });
  const { code, tinker } = await doctor(t, await without(t, url, 'prompt_logprobs'));
  assert.equal(code, 0);
  assert.match(tinker[1]!, /^note .*no logprobs of prompts, so compute_logprobs\(\) fails/);
  const { code: failed, tinker: lines } = await doctor(t, await without(t, url, 'return_token_ids'));
  assert.equal(failed, 1);
  assert.equal(lines.length, 1);
  assert.match(lines[0]!, /^PROBLEM .*does not sample from prompts of token ids/);
});

test('doctor --tinker: the directory of checkpoints and the trainer', async (t) => {
  const url = await sim(t, { kind: 'vllm' });
  const folder = temporaryFolder(t);
  const trainer = await startTrainerStub(t, folder);
  const missing = join(folder, 'none', '{model_id}', '{checkpoint}');
  const { code, tinker } = await doctor(t, url, '--tinker-trainer', trainer.url, '--tinker-weights', missing);
  assert.equal(code, 1);
  assert.match(tinker[0]!, /^PROBLEM .*--tinker-weights: .*none does not exist/);
  assert.match(tinker[1]!, /^ok .*the trainer .* answers/);
  const gone = await deadUrl();
  const { code: failed, tinker: lines } = await doctor(t, url, '--tinker-trainer', gone);
  assert.equal(failed, 1);
  assert.match(lines[0]!, /^PROBLEM .*--tinker-trainer: .*ECONNREFUSED/);
});
