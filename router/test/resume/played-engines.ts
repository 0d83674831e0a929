import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Exchange } from '../../src/exchange.ts';
import type { RouterParts } from '../../src/router.ts';
import { connectClient } from '../harness/client.ts';
import { post } from '../harness/fleet.ts';
import { type EngineRequest, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { until } from '../harness/within.ts';

export const BODY = { input_ids: [1, 2, 3], stream: true, sampling_params: { max_new_tokens: 4 } };

/** An event of a cumulative stream of SGLang. */
export const event = (ids: readonly number[], finish: object | null = null, prompt = 3): string =>
  `data: ${JSON.stringify({
    text: ids.map((id) => `<${id}>`).join(''),
    output_ids: ids,
    meta_info: {
      id: 'x',
      finish_reason: finish,
      prompt_tokens: prompt,
      completion_tokens: ids.length,
      weight_version: '1',
    },
  })}\n\n`;
export const END = event([9], { type: 'length', length: 1 }, 5);
export const LAST_CHUNK = '0\r\n\r\n';
export const DONE = 'data: [DONE]\n\n';

/** Engines that a test plays, in the order in which the router turns to them. */
export async function scene(t: TestContext, options: RouterOptions = {}, parts: RouterParts = {}) {
  const engines = await Promise.all([startEngine(t), startEngine(t)]);
  const workerUrls = engines.map(({ url }) => url);
  const router = await startTestRouter(t, { workerUrls, policy: 'round_robin', resume: 'on', ...options }, parts);
  const client = await connectClient(t, router.url);
  const metric = async (sample: string): Promise<string> => {
    const page = await (await fetch(`${router.metricsUrl}/metrics`)).text();
    return page.split('\n').find((line) => line.startsWith(`${sample} `)) ?? '';
  };
  /** The only request in flight has come so far. */
  const read = (hasCome: (x: Exchange) => boolean): Promise<void> =>
    until('the router has read it', () => [...router.pipeline.inFlight].every(hasCome));
  return { router, engines, client, metric, read };
}

export async function payloadOf(asked: EngineRequest): Promise<Record<string, unknown>> {
  return JSON.parse((await asked.payload()).toString()) as Record<string, unknown>;
}

/** The first two tokens of a generation. */
export async function begin(
  { client, engines }: Awaited<ReturnType<typeof scene>>,
  body: object = BODY,
): Promise<EngineRequest> {
  client.write(post('/generate', body));
  const asked = await engines[0].next();
  await asked.payload();
  asked.beginStream();
  asked.connection.write(chunk(event([7])) + chunk(event([7, 8])));
  await client.read('<7><8>');
  return asked;
}

/** The rest of it, by the other engine. */
export async function end({ client, engines }: Awaited<ReturnType<typeof scene>>): Promise<string> {
  const asked = await engines[1].next();
  assert.deepEqual(await payloadOf(asked), {
    ...BODY,
    input_ids: [1, 2, 3, 7, 8],
    sampling_params: { max_new_tokens: 2 },
  });
  asked.beginStream();
  asked.connection.write(chunk(END) + chunk(DONE) + LAST_CHUNK);
  return client.read('0\r\n\r\n');
}

export const JOINED =
  '"text":"<7><8><9>","output_ids":[7,8,9],"meta_info":{"id":"x","finish_reason":{"type":"length","length":3},"prompt_tokens":3,"completion_tokens":3,';
