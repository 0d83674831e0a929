import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { call } from './call.ts';
import { startVllm, type Engine } from './engines.ts';
import { folderOf, whyNoEngines } from './installed.ts';
import { SAMPLED_TWICE, assertClose, assertExported, assertRetrieved, turnsOf } from './kept.ts';
import {
  assertGoesOn,
  completedBy,
  emptyLine,
  encodedBy,
  grown,
  lettersOnly,
  type Generated,
  type Line,
} from './line.ts';
import { startRouter, type Router } from './router.ts';
import { tapOn, type Heard, type Tap } from './tap.ts';

const skip = await whyNoEngines();
const path = '/v1/completions';

describe('the radix tree before a real vLLM', { skip }, () => {
  let engine: Engine;
  let tap: Tap;
  let router: Router;

  before(async () => {
    engine = await startVllm({ model: 'moe' });
    tap = await tapOn(engine.url);
    const plugin = 'radix-tree:{"completions":true}';
    router = await startRouter([tap.url], ['--tokenizer-path', folderOf('moe'), '--plugin', plugin]);
  });

  after(async () => {
    await router?.stop();
    tap?.close();
    await engine?.stop();
  });

  interface Asked {
    prompt: number[] | number[][];
    return_token_ids: boolean;
  }

  async function ask(session: string, body: object): Promise<{ asked: Asked; heard: Heard; said: Generated[] }> {
    const question = { model: 'tiny', logprobs: 1, ...body };
    const answer = await call(router.url, path, { body: question, headers: { 'x-session-id': session } });
    assert.equal(answer.status, 200, answer.body);
    const heard = tap.last(path);
    assert.equal(answer.body, heard.answered);
    const { prompt, return_token_ids: asksForIds, ...rest } = JSON.parse(heard.asked) as Asked;
    const { prompt: _, ...others } = question as { prompt?: unknown };
    assert.deepEqual(rest, others);
    return { asked: { prompt, return_token_ids: asksForIds }, heard, said: completedBy(heard.answered) };
  }

  async function turn(session: string, line: Line, more: string, params: object): Promise<Line> {
    const { asked, heard, said } = await ask(session, { prompt: line.text + more, ...params });
    const ids = asked.prompt as number[];
    assert.equal(asked.return_token_ids, true);
    const kept = await assertGoesOn(engine.url, line, more, ids);
    assert.equal(said[0]!.promptTokens, ids.length);
    const body = { ...(JSON.parse(heard.asked) as object), stream: false };
    const [direct] = completedBy((await call(engine.url, path, { body })).body);
    assert.deepEqual(said[0]!.ids, direct!.ids);
    assertClose(said[0]!.logprobs, direct!.logprobs, SAMPLED_TWICE);
    return grown(line, more, kept, ids, said[0]!);
  }

  for (const stream of [false, true]) {
    for (const [kind, own] of Object.entries({ 'whole letters': { logit_bias: lettersOnly }, 'any token': {} })) {
      test(`turns of ${kind}, ${stream ? 'streamed' : 'whole'}: their text gives back what was sampled`, async () => {
        const session = `${kind[0]}-${stream}`;
        let line = emptyLine;
        let more = `${session} Which way? {"a": "é 日本語"}<|im_end|>\n<|im_start|>assistant\n`;
        for (const skipsSpecial of [true, false, true, true]) {
          const params = { max_tokens: 24, skip_special_tokens: skipsSpecial, stream, ...own };
          line = await turn(session, line, more, { ...params, temperature: 0 });
          more = '<|im_end|>\n<|im_start|>tool\n👩‍👩‍👧‍👦 ünï\tx?.[i]<|im_end|>\n<|im_start|>assistant\n';
        }
        await assertRetrieved(router.url, line);
        await assertExported(router.url, session, line);
        await turnsOf(router.url, session, 4);
      });
    }
  }

  test('lists and samples are separated', async () => {
    const texts = ['One two é', 'Left, then 日本'];
    const params = { max_tokens: 12, n: 2, temperature: 1, seed: 7 };
    const { asked, said } = await ask('list', { prompt: texts, ...params });
    assert.equal(said.length, 4);
    for (const [i, one] of said.entries()) {
      const at = Math.floor(i / 2);
      const ids = await encodedBy(engine.url, texts[at]!);
      assert.deepEqual(asked.prompt[at], ids);
      await assertRetrieved(router.url, grown(emptyLine, texts[at]!, 0, ids, one), SAMPLED_TWICE);
    }
  });
});
