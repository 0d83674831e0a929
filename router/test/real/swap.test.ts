import assert from 'node:assert/strict';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { type Answer, call, eventsOf, open } from './call.ts';
import { type Engine, startSglang, startVllm } from './engines.ts';
import { folderOf, whyNoEngines } from './installed.ts';
import { type Router, startRouter } from './router.ts';
import { saidBy } from './said.ts';
import { until } from './until.ts';

const skip = await whyNoEngines();

const path = '/inference/v1/completions';
const model = 'accounts/acct/models/tiny';
const greedy = { model, prompt: [10, 20, 30], temperature: 0, ignore_eos: true, return_token_ids: true };
const TOKENS = 1900;
const long = { ...greedy, max_tokens: TOKENS, stream: true };
const short = { body: { ...greedy, max_tokens: 8 } };

const tokensOf = (answer: Answer): number[] => saidBy(answer)[0]!.tokens;
const at = (engine: Engine) => ({ 'x-turnout-worker': engine.url });

/** The snapshot that the `model` of each chunk with tokens names, one for each token. */
function labelsOf(answer: Answer): string[] {
  return eventsOf(answer.body)
    .filter((event) => event !== '[DONE]')
    .flatMap((event) => {
      const { model: label, choices } = JSON.parse(event) as { model: string; choices: { token_ids?: number[] }[] };
      return (choices[0]?.token_ids ?? []).map(() => label.slice(label.indexOf('@') + 1));
    });
}

describe('real engines get new weights while they generate', { skip }, () => {
  let engines: [vllm: Engine, sglang: Engine, other: Engine];
  let router: Router;
  /** What each snapshot samples, by SGLang alone. */
  let base: number[];

  before(async () => {
    engines = await Promise.all([startVllm(), startSglang(), startSglang()]);
    const snapshots = join(dirname(folderOf('dense')), '{identity}');
    router = await startRouter(
      engines.map(({ url }) => url),
      ['--swap-snapshots', snapshots, '--swap-base-identity', 'base', '--resume', 'on', '--worker-header'],
    );
    base = tokensOf(await call(engines[1].url, '/v1/completions', { body: { ...long, model: 'tiny' } }));
    assert.equal(base.length, TOKENS);
  });

  after(async () => {
    await Promise.all([router, ...(engines ?? [])].map((one) => one?.stop()));
  });

  async function swapTo(identity: string): Promise<void> {
    const answer = await call(router.url, '/swap', { body: { identity } });
    assert.equal(answer.status, 202, answer.body);
    await until(`all engines have ${identity}`, 60_000, async () => {
      const { deployments } = JSON.parse((await call(router.url, '/swap')).body) as {
        deployments: { workers: { snapshot: string | null; state: string; error: string | null }[] }[];
      };
      const { workers } = deployments[0]!;
      assert.deepEqual(
        workers.flatMap(({ error }) => error ?? []),
        [],
      );
      return workers.every(({ snapshot, state }) => snapshot === identity && state === 'serving');
    });
  }

  const shortAt = async (engine: Engine) => tokensOf(await call(router.url, path, { ...short, headers: at(engine) }));

  test('streams go on over the same connection; each chunk names the snapshot that sampled it', async () => {
    const streams = await Promise.all(
      engines.map((engine) => open(router.url, path, { body: long, headers: at(engine) })),
    );
    await Promise.all(streams.map((stream) => stream.seen(40)));
    await swapTo('dense_v2');
    for (const answer of await Promise.all(streams.map((stream) => stream.answer))) {
      assert.equal(answer.status, 200);
      assert.ok(answer.isComplete);
      const tokens = tokensOf(answer);
      const labels = labelsOf(answer);
      assert.equal(tokens.length, TOKENS);
      assert.equal(labels.length, TOKENS);
      const seam = labels.indexOf('dense_v2');
      assert.ok(seam >= 39, `the first token of dense_v2 is number ${seam}`);
      assert.deepEqual(new Set(labels.slice(0, seam)), new Set(['base']));
      assert.deepEqual(new Set(labels.slice(seam)), new Set(['dense_v2']));
      assert.deepEqual(tokens.slice(0, seam), base.slice(0, seam));
      assert.notDeepEqual(tokens.slice(seam), base.slice(seam));
    }
  });

  test('new requests get what the snapshot samples, and its old weights after the way back', async () => {
    const [ofVllm, ...ofSglang] = await Promise.all(engines.map(shortAt));
    for (const tokens of ofSglang) assert.deepEqual(tokens, ofVllm);
    assert.notDeepEqual(ofVllm, base.slice(0, 8));
    await swapTo('dense');
    for (const engine of engines) assert.deepEqual(await shortAt(engine), base.slice(0, 8));
  });

  test('a generation whose engine dies continues on another one of its kind, token for token', async () => {
    const body = { ...long, model: 'tiny' };
    const streams = await Promise.all(engines.map(() => open(router.url, '/v1/completions', { body })));
    await Promise.all(streams.map((stream) => stream.seen(40)));
    assert.deepEqual(await Promise.all(engines.map((engine) => engine.running())), [1, 1, 1]);
    await engines[2].kill();
    for (const answer of await Promise.all(streams.map((stream) => stream.answer))) {
      assert.ok(answer.isComplete && answer.body.endsWith('data: [DONE]\n\n'));
      assert.deepEqual(tokensOf(answer), base);
      assert.equal(saidBy(answer)[0]!.finish, 'length');
    }
    const metrics = (await call(router.url, '/metrics')).body;
    assert.match(metrics, /^turnout_resumes_total\{cause="cut"\} 1$/m);
  });
});
