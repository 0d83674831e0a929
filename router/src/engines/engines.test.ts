import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Asker } from './ask.ts';
import { Unidentified, identify } from './engines.ts';

/** Answers with these bodies, and with 404 on other paths. */
const answering =
  (bodies: Readonly<Record<string, string>>): Asker =>
  (path) => {
    const text = bodies[path];
    return Promise.resolve(text === undefined ? { status: 404, text: '' } : { status: 200, text });
  };

const models = '{"data":[{"id":"m"}]}';
const sglang = answering({ '/model_info': '{"model_path":"m"}', '/v1/models': models });
const vllm = answering({ '/version': '{"version":"0.33.0"}', '/v1/models': models });
const other = answering({ '/v1/models': models });

test('the kind of an engine, by what it answers', async () => {
  const kinds = await Promise.all([sglang, vllm, other].map(async (asker) => (await identify(asker)).kind));
  assert.deepEqual(kinds, ['sglang', 'vllm', 'openai']);
});

test('an engine that does not answer what decides its kind has none', async () => {
  const reset = (): Promise<never> => Promise.reject(Object.assign(new Error('hung up'), { code: 'ECONNRESET' }));
  const away = (): ReturnType<Asker> => Promise.resolve({ status: 503, text: '' });
  const without =
    (asker: Asker, lacks: string, instead: Asker): Asker =>
    (path) =>
      path === lacks ? instead(path) : asker(path);
  for (const [asker, problem] of [
    [without(sglang, '/model_info', reset), /^\/model_info: ECONNRESET$/],
    [without(sglang, '/model_info', away), /^\/model_info answered 503$/],
    [without(vllm, '/version', reset), /^\/version: ECONNRESET$/],
    [without(other, '/version', away), /^\/version answered 503$/],
  ] as const)
    await assert.rejects(identify(asker), (error) => error instanceof Unidentified && problem.test(error.message));
  // A proxy that passes on only what it knows.
  for (const [asker, kind] of [
    [without(vllm, '/model_info', away), 'vllm'],
    [without(other, '/version', away), 'openai'],
  ] as const)
    assert.equal((await identify(asker, true)).kind, kind);
  await assert.rejects(identify(without(other, '/version', reset), true), Unidentified);
  await assert.rejects(identify(without(answering({}), '/version', away), true), Unidentified);
  // What does not decide it may be missing.
  assert.equal((await identify(without(vllm, '/metrics', reset))).kind, 'vllm');
  assert.equal((await identify(without(other, '/v1/models', reset))).kind, 'openai');
});
