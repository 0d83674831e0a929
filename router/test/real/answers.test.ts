import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { call, eventsOf, open, type Answer } from './call.ts';
import { startSglang, startVllm, type Engine } from './engines.ts';
import { whyNoEngines, type EngineKind } from './installed.ts';
import { generation, questionsTo, refusals, type Question } from './questions.ts';
import { startRouter, type Router } from './router.ts';
import { assertAlike, saidBy } from './said.ts';
import { tapOn, type Heard, type Tap } from './tap.ts';

const skip = await whyNoEngines();

/** One engine, asked directly and through a router of its own, which a tap listens to. */
interface Side {
  engine: Engine;
  tap: Tap;
  router: Router;
}

const HOP_BY_HOP = new Set(['connection', 'keep-alive', 'transfer-encoding', 'date']);

describe('real engines answer through the router as they answer directly', { skip }, () => {
  const sides = {} as Record<EngineKind, Side>;
  let fleet: Router;

  before(async () => {
    const [vllm, sglang] = await Promise.all([startVllm({ model: 'moe' }), startSglang({ model: 'moe' })]);
    for (const engine of [vllm, sglang]) {
      const tap = await tapOn(engine.url);
      sides[engine.kind] = { engine, tap, router: await startRouter([tap.url]) };
    }
    fleet = await startRouter([vllm.url, sglang.url]);
  });

  after(async () => {
    await fleet?.stop();
    for (const { engine, tap, router } of Object.values(sides)) {
      await router.stop();
      tap.close();
      await engine.stop();
    }
  });

  /** Asks through the router and holds what passed the tap against what was sent and what came back. */
  async function askThrough(side: Side, question: Question): Promise<Answer> {
    const routed = await call(side.router.url, question.path, question);
    assertUntouched(question, routed, side.tap.last(question.path));
    return routed;
  }

  for (const kind of ['vllm', 'sglang'] as const) {
    describe(kind, () => {
      for (const question of questionsTo(kind, generation)) {
        test(question.name, async () => {
          const side = sides[kind];
          await call(side.engine.url, question.path, question); // both runs after it find the prompt cached
          const direct = await call(side.engine.url, question.path, question);
          assert.equal(direct.status, 200, direct.body);
          const routed = await askThrough(side, question);
          assert.ok(routed.isComplete);
          assert.deepEqual(saidBy(routed), saidBy(direct));
          if (direct.body.startsWith('data: ')) assert.equal(eventsOf(routed.body).at(-1), '[DONE]');
          else assertAlike(JSON.parse(routed.body), JSON.parse(direct.body));
        });
      }

      for (const question of questionsTo(kind, refusals)) {
        test(`refuses ${question.name} in its own words`, async () => {
          const side = sides[kind];
          const direct = await call(side.engine.url, question.path, question);
          assert.match(direct.body, /error/);
          const routed = await askThrough(side, question);
          assert.equal(routed.status, direct.status);
          assert.equal(routed.body, direct.body);
        });
      }

      test('headers reach the engine, known or not', async () => {
        const headers = { 'x-request-id': 'turn-7', 'x-nobody-knows': 'a, b;c="d"' };
        const body = { model: 'tiny', prompt: [10, 20, 30], max_tokens: 1 };
        const question = { name: '', of: [kind], path: '/v1/completions?left=out', headers, body };
        const routed = await askThrough(sides[kind], question);
        const heard = sides[kind].tap.last(question.path);
        for (const [name, value] of Object.entries(headers)) assert.equal(heard.headers[name], value);
        if (kind === 'vllm') assert.equal((JSON.parse(routed.body) as { id: string }).id, 'cmpl-turn-7');
      });
    });
  }

  test('all roads give the same greedy tokens: both engines, all endpoints, routed or not', async () => {
    for (const prompt of [[10, 20, 30, 40, 50], [400, 300, 7], Array.from({ length: 90 }, (_, i) => 100 + i)]) {
      const greedy = { temperature: 0, ignore_eos: true };
      const completion = {
        body: { ...greedy, model: 'tiny', prompt, max_tokens: 200, return_token_ids: true },
      };
      const native = {
        body: { input_ids: prompt, sampling_params: { ...greedy, max_new_tokens: 200 } },
      };
      const tokens = {
        body: { token_ids: prompt, sampling_params: { ...greedy, max_tokens: 200 } },
      };
      const { vllm, sglang } = sides;
      const answers = await Promise.all([
        ...[vllm.engine, vllm.router, sglang.engine, sglang.router, fleet].flatMap(({ url }) => [
          call(url, '/v1/completions', completion),
          call(url, '/v1/completions', { body: { ...completion.body, stream: true } }),
        ]),
        ...[vllm.engine, vllm.router].map(({ url }) => call(url, '/inference/v1/generate', tokens)),
        ...[sglang.engine, sglang.router].map(({ url }) => call(url, '/generate', native)),
      ]);
      const [first, ...others] = answers.map(tokensOf);
      assert.equal(first?.length, 200);
      assert.ok(new Set(first).size > 50, 'one token over and over would prove nothing');
      for (const other of others) assert.deepEqual(other, first);
    }
  });

  test('twenty streams at once over both engines each say what their prompt alone says', async () => {
    const bodies = Array.from({ length: 20 }, (_, i) => ({
      model: 'tiny',
      prompt: [10 + i * 7, 300 - i, 5 + i],
      max_tokens: 150,
      temperature: 0,
      ignore_eos: true,
      return_token_ids: true,
      stream: true,
    }));
    const alone = [];
    for (const body of bodies) alone.push(tokensOf(await call(sides.vllm.engine.url, '/v1/completions', { body })));
    const streams = await Promise.all(bodies.map((body) => open(fleet.url, '/v1/completions', { body })));
    const answers = await Promise.all(streams.map((stream) => stream.answer));
    // Not their text: at half a character in the end one engine holds it back, the other writes it as it is.
    assert.deepEqual(answers.map(tokensOf), alone);
    assert.ok(answers.every((answer) => answer.isComplete && answer.body.endsWith('data: [DONE]\n\n')));
    // vLLM alone prefixes its ids.
    const byVllm = answers.filter((answer) => answer.body.includes('"id":"cmpl-')).length;
    assert.ok(byVllm >= 5 && byVllm <= 15, `vLLM answered ${byVllm} of 20`);
  });
});

function tokensOf(answer: Answer): number[] | undefined {
  return saidBy(answer)[0]?.tokens;
}

function assertUntouched(question: Question, routed: Answer, heard: Heard): void {
  const { body } = question;
  assert.equal(heard.path, question.path);
  assert.equal(heard.asked, typeof body === 'string' ? body : JSON.stringify(body), 'what the engine was asked');
  assert.equal(routed.status, heard.status);
  assert.equal(routed.body, heard.answered, 'what the client got');
  for (const [name, value] of Object.entries(heard.answerHeaders))
    if (!HOP_BY_HOP.has(name)) assert.deepEqual(routed.headers[name], value, name);
}
