import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { call, eventsOf, open, type Answer } from './call.ts';
import { startSglang, startVllm, type Engine } from './engines.ts';
import { whyNoEngines } from './installed.ts';
import { startRouter, type Router } from './router.ts';
import { saidBy } from './said.ts';
import { until } from './until.ts';

const skip = await whyNoEngines();

const path = '/v1/completions';
const greedy = { model: 'tiny', prompt: [10, 20, 30], temperature: 0, ignore_eos: true };
const long = { body: { ...greedy, max_tokens: 1900, return_token_ids: true, stream: true } };
const short = { body: { ...greedy, max_tokens: 8, return_token_ids: true } };

/** vLLM alone prefixes its ids. */
const isFromVllm = (answer: Answer): boolean => answer.body.includes('"id":"cmpl-');

describe('a real engine that dies takes its own streams along and nothing else', { skip }, () => {
  let vllm: Engine;
  let sglang: Engine;
  let router: Router;
  let whole: number[];
  let brief: number[];

  before(async () => {
    [vllm, sglang] = await Promise.all([startVllm(), startSglang()]);
    router = await startRouter(
      [vllm.url, sglang.url],
      ['--health-check-interval-secs', '1', '--health-failure-threshold', '2'],
    );
    whole = saidBy(await call(sglang.url, path, long))[0]!.tokens;
    brief = saidBy(await call(sglang.url, path, short))[0]!.tokens;
    assert.equal(whole.length, 1900);
  });

  after(async () => {
    await Promise.all([router, vllm, sglang].map((one) => one?.stop()));
  });

  /** Opens a stream on each engine, ends one of the engines, and gives the answers: the cut one first. */
  async function streamAcross(victim: Engine, end: () => unknown): Promise<[Answer, Answer]> {
    const streams = await Promise.all([1, 2].map(() => open(router.url, path, long)));
    await Promise.all(streams.map((stream) => stream.seen(10)));
    assert.deepEqual([await vllm.running(), await sglang.running()], [1, 1], 'one stream on each');
    await end();
    const answers = await Promise.all(streams.map((stream) => stream.answer));
    answers.sort((a) => (isFromVllm(a) === (victim.kind === 'vllm') ? -1 : 1));
    return answers as [Answer, Answer];
  }

  function assertVisiblyCut(answer: Answer): void {
    const events = eventsOf(answer.body);
    const hasError = events.some((event) => event !== '[DONE]' && 'error' in JSON.parse(event));
    assert.ok(hasError || !answer.isComplete, 'the client is told nothing');
    if (!hasError) assert.notEqual(events.at(-1), '[DONE]');
    const { tokens, finish } = saidBy(answer)[0]!;
    assert.equal(finish, null);
    assert.ok(tokens.length >= 9 && tokens.length < whole.length);
    assert.deepEqual(tokens, whole.slice(0, tokens.length), 'what came is right');
  }

  function assertWhole(answer: Answer): void {
    assert.ok(answer.isComplete && answer.body.endsWith('data: [DONE]\n\n'));
    assert.deepEqual(saidBy(answer)[0], { ...saidBy(answer)[0], tokens: whole, finish: 'length' });
  }

  async function assertAllServed(): Promise<Answer[]> {
    const answers = await Promise.all(Array.from({ length: 20 }, () => call(router.url, path, short)));
    for (const answer of answers) {
      assert.equal(answer.status, 200, answer.body);
      assert.deepEqual(saidBy(answer)[0]!.tokens, brief);
    }
    return answers;
  }

  test('vLLM killed mid-stream: its stream is cut, the other goes on, the next are served', async () => {
    const [cut, other] = await streamAcross(vllm, vllm.kill);
    assertVisiblyCut(cut);
    const answers = await assertAllServed();
    assert.ok(answers.every((answer) => !isFromVllm(answer)));
    assertWhole(other);
  });

  test('restarted on its port it gets requests again, and none fails meanwhile', async () => {
    const restarted = startVllm({ port: Number(new URL(vllm.url).port) });
    await until('vLLM answers again through the router', 240_000, async () =>
      (await assertAllServed()).some(isFromVllm),
    );
    vllm = await restarted;
  });

  test('SGLang killed mid-stream: its stream is cut, the other goes on, the next are served', async () => {
    const [cut, other] = await streamAcross(sglang, sglang.kill);
    assertVisiblyCut(cut);
    const answers = await assertAllServed();
    assert.ok(answers.every(isFromVllm));
    assertWhole(other);
  });

  test("vLLM's engine core killed: the error that its API still tells reaches the client", async () => {
    sglang = await startSglang({ port: Number(new URL(sglang.url).port) });
    await until('both engines serve', 60_000, async () => {
      const byVllm = (await assertAllServed()).filter(isFromVllm).length;
      return byVllm > 0 && byVllm < 20;
    });
    const [cut, other] = await streamAcross(vllm, vllm.killCore);
    assertVisiblyCut(cut);
    assert.match(cut.body, /EngineCore encountered an issue/);
    assertWhole(other);
    await assertAllServed();
  });
});
