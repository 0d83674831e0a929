import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { call, eventsOf, open, type Answer } from './call.ts';
import { startVllm, sumOfMetric, type Engine } from './engines.ts';
import { startVllmHalf } from './halves.ts';
import { whyNoPairs } from './installed.ts';
import { generation, questionsTo } from './questions.ts';
import { startRouter, type Router } from './router.ts';
import { assertAlike, probabilitiesOf, saidBy } from './said.ts';
import { tapOn, type Tap } from './tap.ts';
import { until } from './until.ts';

const skip = await whyNoPairs('vllm');

const path = '/v1/completions';
const PROMPT_TOKENS = 150;
const LONG = 300;
const ask = (seed: number, tokens: number) => ({
  body: {
    model: 'tiny',
    prompt: Array.from({ length: PROMPT_TOKENS }, (_, i) => 20 + ((seed * 101 + i * 53) % 400)),
    max_tokens: tokens,
    temperature: 0,
    ignore_eos: true,
    return_token_ids: true,
    stream: true,
  },
});

/** Several sequences out of one request are one engine's work: nothing of them is handed over. */
const ofOneEngine = new Set(['completions of two prompts', 'completions, two samples']);
const questions = questionsTo('vllm', generation);

describe('a real vLLM pair answers as one engine does', { skip }, () => {
  let plain: Engine;
  let prefill: Engine;
  let decode: Engine;
  let prefillTap: Tap;
  let decodeTap: Tap;
  let router: Router;

  before(async () => {
    [plain, prefill, decode] = await Promise.all([startVllm(), startVllmHalf(), startVllmHalf()]);
    [prefillTap, decodeTap] = await Promise.all([tapOn(prefill.url), tapOn(decode.url)]);
    const pair = ['--prefill-workers', prefillTap.url, '--decode-workers', decodeTap.url, '--kv-connector', 'nixl'];
    const health = ['--health-check-interval-secs', '1', '--health-failure-threshold', '2'];
    router = await startRouter([], ['--mode', 'pd', ...pair, ...health], 2, 'vllm-router');
  });

  after(async () => {
    await router?.stop();
    prefillTap?.close();
    decodeTap?.close();
    await Promise.all([plain, prefill, decode].map((one) => one?.stop()));
  });

  const transfers = () => sumOfMetric(decode.url, 'vllm:nixl_xfer_time_seconds_count');
  const fetched = () => sumOfMetric(decode.url, 'vllm:external_prefix_cache_hits_total');

  for (const question of questions) {
    const parts = ofOneEngine.has(question.name) ? 'one engine' : 'a pair';
    test(`${question.name}: by ${parts}`, async () => {
      const asked = prefillTap.posted.length;
      const [routed, alone] = [
        await call(router.url, question.path, question),
        await call(plain.url, question.path, question),
      ];
      assert.equal(routed.status, 200, routed.body);
      assert.ok(routed.isComplete);
      assert.equal(routed.headers['content-type'], alone.headers['content-type']);
      assert.deepEqual(saidBy(routed), saidBy(alone));
      assertAlike(probabilitiesOf(routed), probabilitiesOf(alone));
      assert.deepEqual(usageOf(routed), usageOf(alone));
      assert.equal(prefillTap.posted.length - asked, parts === 'a pair' ? 1 : 0);
      if (parts === 'a pair') assert.match(decodeTap.posted.at(-1)!.asked, /"do_remote_prefill":\s*true/);
    });
  }

  test('the KV of each prompt goes from engine to engine, and only one of them computes it', async () => {
    const computed = (engine: Engine) =>
      sumOfMetric(engine.url, 'vllm:prompt_tokens_by_source_total', 'source="local_compute"');
    const before = [await transfers(), await fetched(), await computed(prefill), await computed(decode)];
    for (let seed = 500; seed < 504; seed++) {
      const [routed, alone] = [await call(router.url, path, ask(seed, 8)), await call(plain.url, path, ask(seed, 8))];
      assert.deepEqual(tokensOf(routed), tokensOf(alone));
    }
    await until('the decode engine has counted four', 30_000, async () => (await transfers()) - before[0]! >= 4);
    const after = [await transfers(), await fetched(), await computed(prefill), await computed(decode)];
    const [transferred, hits, byPrefill, byDecode] = after.map((count, i) => count - before[i]!);
    assert.deepEqual([transferred, hits, byPrefill], [4, 4 * PROMPT_TOKENS, 4 * PROMPT_TOKENS]);
    assert.ok(byDecode! <= 4, `the decode engine computed ${byDecode} prompt tokens itself`);
  });

  describe('and lives through the death of', () => {
    let second: Engine;
    const whole: number[][] = [];

    before(async () => {
      const alone = Array.from({ length: 8 }, (_, seed) => call(plain.url, path, ask(seed, LONG)));
      whole.push(...(await Promise.all(alone)).map(tokensOf));
      await plain.stop(); // no machine for tests has to hold four engines
      second = await startVllmHalf();
      const added = await call(router.url, '/workers', { body: { url: second.url, worker_type: 'prefill' } });
      assert.equal(added.status, 200, added.body); // as vllm-router answers it
      const made = await second.tokensMade();
      await until('both prefill engines serve', 60_000, async () => {
        await assertServed();
        return (await second.tokensMade()) > made;
      });
    });

    after(() => second?.stop());

    async function assertServed(): Promise<void> {
      const answers = await Promise.all([0, 1, 2, 3].map((seed) => call(router.url, path, ask(seed, 8))));
      for (const [seed, answer] of answers.entries()) {
        assert.equal(answer.status, 200, answer.body);
        assert.deepEqual(tokensOf(answer), whole[seed]!.slice(0, 8));
      }
    }

    test('a prefill engine: streams go on, the next requests take the other one', async () => {
      const streams = await Promise.all([0, 1, 2, 3].map((seed) => open(router.url, path, ask(seed, LONG))));
      await Promise.all(streams.map((stream) => stream.seen(5)));
      // Some of these are at the engine when it dies, and of some it has just said where their KV is.
      const asked = prefillTap.posted.length;
      const later = [4, 5, 6, 7].map((seed) => call(router.url, path, ask(seed, 200)));
      await until('the prefill engine has some of them', 10_000, () => prefillTap.posted.length > asked);
      await prefill.kill();
      await assertServed();
      for (const [i, answer] of (await Promise.all(later)).entries())
        assert.deepEqual(tokensOf(answer), whole[4 + i]!.slice(0, 200), answer.body);
      for (const [seed, stream] of streams.entries()) assert.deepEqual(tokensOf(await stream.answer), whole[seed]);
    });

    test('that engine, which takes its part again when it is back', async () => {
      prefill = await startVllmHalf({ port: Number(new URL(prefill.url).port) });
      const made = await prefill.tokensMade();
      await until('it is asked again', 60_000, async () => {
        await assertServed();
        return (await prefill.tokensMade()) > made;
      });
      await assertServed();
    });

    test('the decode engine: its streams are cut, requests are refused at once, and served when it is back', async () => {
      const streams = await Promise.all([0, 1].map((seed) => open(router.url, path, ask(seed, LONG))));
      await Promise.all(streams.map((stream) => stream.seen(5)));
      await decode.kill();
      for (const [seed, stream] of streams.entries()) {
        const cut = await stream.answer;
        assert.ok(!cut.isComplete || cut.body.includes('"error"'), 'the client is told nothing');
        assert.notEqual(eventsOf(cut.body).at(-1), '[DONE]');
        const tokens = tokensOf(cut);
        assert.ok(tokens.length < LONG);
        assert.deepEqual(tokens, whole[seed]!.slice(0, tokens.length), 'what came is right');
      }
      const refused = await call(router.url, path, ask(0, 8));
      assert.ok([502, 503].includes(refused.status), refused.body);
      decode = await startVllmHalf({ port: Number(new URL(decode.url).port) });
      await until('requests are served', 120_000, async () => {
        return (await call(router.url, path, ask(0, 8))).status === 200;
      });
      const before = await transfers();
      await assertServed();
      assert.ok((await transfers()) > before, 'by pairs');
    });
  });
});

const tokensOf = (answer: Answer): number[] => saidBy(answer)[0]?.tokens ?? [];

/** As far as it is told, with the tokens that the cache of the engine that read the prompt had. */
function usageOf(answer: Answer): unknown {
  const isStream = answer.headers['content-type']?.startsWith('text/event-stream') ?? false;
  const parts = isStream ? eventsOf(answer.body).filter((event) => event !== '[DONE]') : [answer.body];
  const usages = parts.map((part) => (JSON.parse(part) as { usage?: Usage | null }).usage);
  const usage = usages.findLast((one) => one);
  // What a request added to a cache is the decode engine's own count, here and in the answers of pairs.
  if (usage?.prompt_tokens_details) delete usage.prompt_tokens_details['created_cache_tokens'];
  return usage;
}

interface Usage {
  prompt_tokens_details?: Record<string, unknown> | null;
}
