import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startSwapScene } from './swap-scene.ts';

const SESSION = 'x-multi-turn-session-id';

/** Which namespace a later request has, by the reset: the one before the swap, or the one of the swap. */
const table = {
  all: { sameSession: 'new', newSession: 'new' },
  new_session: { sameSession: 'old', newSession: 'new' },
  none: { sameSession: 'old', newSession: 'old' },
} as const;

for (const kind of ['vllm', 'sglang'] as const) {
  test(`${kind} gets the namespaces of the table for each transition, reset and kind of session`, async (t) => {
    const { post, swap, log } = await startSwapScene(t, [kind], { meanOutputTokens: 0 });
    const paths = kind === 'vllm' ? ['/v1/completions', '/inference/v1/generate'] : ['/v1/completions', '/generate'];
    const bodies: Record<string, (prompt: readonly number[]) => object> = {
      '/v1/completions': (prompt) => ({ prompt, max_tokens: 2 }),
      '/inference/v1/generate': (prompt) => ({ token_ids: prompt, sampling_params: { max_tokens: 2 } }),
      '/generate': (prompt) => ({ input_ids: prompt, sampling_params: { max_new_tokens: 2 } }),
    };
    let step = 0;
    for (const transition of ['async', 'sync'] as const) {
      for (const reset of ['all', 'new_session', 'none', 'new_session', 'none', 'all'] as const) {
        for (const path of paths) {
          const id = ++step;
          // Whole blocks of a prompt of its own.
          const prompt = Array.from({ length: 64 }, (_, i) => 300 + ((id * 7 + i) % 200));
          const ask = async (headers: Record<string, string> = {}) => {
            const response = await post(path, bodies[path]!(prompt), headers);
            assert.equal(response.status, 200, await response.text());
            return log.at(-1)!;
          };
          const claim = `${transition} ${reset} ${path} ${id}`;
          const before = await ask({ [SESSION]: `s${id}` });
          const alone = await ask();
          await swap(`v${id}`, { reset, transition });
          const same = await ask({ [SESSION]: `s${id}` });
          const fresh = await ask({ [SESSION]: `new${id}` });
          const others = [
            await ask(),
            await ask({ 'x-session-affinity': `s${id}` }),
            await ask({ 'x-session-id': `s${id}` }),
          ];
          const wanted = table[reset];
          assert.equal(same.namespace === before.namespace, wanted.sameSession === 'old', `${claim}: same session`);
          assert.equal(fresh.namespace === alone.namespace, wanted.newSession === 'old', `${claim}: new session`);
          for (const other of others)
            assert.equal(other.namespace, fresh.namespace, `${claim}: no session is a new one`);
          assert.equal(same.cachedTokens > 0, wanted.sameSession === 'old', `${claim}: the cache of the session`);
          if (reset === 'new_session') assert.equal(fresh.cachedTokens, 0, `${claim}: the cache of others`);
        }
      }
    }
  });
}

test('after the ledger was cleared no request finds what the weights of the start have cached', async (t) => {
  const { post, swap, log, router } = await startSwapScene(t, ['sglang']);
  const prompt = Array.from({ length: 64 }, (_, i) => 300 + i);
  const ask = async () => {
    await (await post('/v1/completions', { prompt, max_tokens: 1 })).text();
    return log.at(-1)!;
  };
  const plain = await ask();
  await swap('v1');
  const { namespace } = await ask();
  assert.notEqual(namespace, plain.namespace);
  const cleared = await fetch(`${router.url}/v1/accounts/a/deployments/d/ledger`, { method: 'DELETE' });
  assert.equal(cleared.status, 200);
  await swap('v2', { reset: 'none' });
  assert.equal((await ask()).namespace, namespace);
});

test('before the first reset, and without swaps, engines get no namespace', async (t) => {
  const { post, swap, log, engines } = await startSwapScene(t, ['vllm']);
  const namespaces = async (): Promise<string> => {
    await post('/v1/completions', { prompt: 'a', max_tokens: 1 }, { [SESSION]: 's' });
    return log.at(-1)!.namespace;
  };
  const plain = await namespaces();
  await fetch(`${engines[0]!.url}/v1/completions`, { method: 'POST', body: JSON.stringify({ prompt: 'a' }) });
  assert.equal(plain, log.at(-1)!.namespace, 'that of a request without a router');
  await swap('v1', { reset: 'none' });
  assert.equal(await namespaces(), plain);
  await swap('v2', { reset: 'new_session' });
  assert.equal(await namespaces(), plain, 'the session goes on in the namespace that it has');
  await swap('v3');
  assert.notEqual(await namespaces(), plain);
});

test('a return to an earlier snapshot does not find the cache of that time', async (t) => {
  const { post, swap, log } = await startSwapScene(t, ['sglang']);
  const namespace = async (): Promise<string> => {
    await post('/v1/completions', { prompt: 'a', max_tokens: 1 });
    return log.at(-1)!.namespace;
  };
  const seen = [await namespace()];
  for (const identity of ['v1', 'v2', 'v1', 'base']) {
    await swap(identity);
    seen.push(await namespace());
  }
  assert.equal(new Set(seen).size, seen.length, seen.join());
});

test("the client's own salt and its isolation key divide each namespace", async (t) => {
  const { post, swap, log } = await startSwapScene(t, ['vllm']);
  const bodies = [
    {},
    { cache_salt: 'own' },
    { prompt_cache_isolation_key: 'own' },
    { cache_salt: 'a', prompt_cache_isolation_key: 'b' },
  ];
  const seen: string[] = [];
  for (const identity of ['', 'v1', 'v2']) {
    if (identity !== '') await swap(identity);
    for (const body of bodies) {
      const response = await post('/v1/completions', { prompt: 'a', max_tokens: 1, ...body });
      assert.equal(response.status, 200, await response.text());
      seen.push(log.at(-1)!.namespace);
    }
  }
  assert.equal(new Set(seen).size, seen.length, seen.join());
});

test('a reset of all is a lost cache for policies that go by prompts; other resets are not', async (t) => {
  const { post, swap, router } = await startSwapScene(t, ['vllm', 'sglang'], {}, { policy: 'cache_aware' });
  const known = async (): Promise<number> => {
    const answer = (await (await fetch(`${router.url}/policies`)).json()) as object;
    return Number(/"blocks":(\d+)/.exec(JSON.stringify(answer))![1]);
  };
  const ask = async (): Promise<void> => {
    const response = await post('/v1/completions', { prompt: 'go on and on '.repeat(100), max_tokens: 1 });
    assert.equal(response.status, 200, await response.text());
  };
  await ask();
  const blocks = await known();
  assert.ok(blocks > 0);
  for (const reset of ['none', 'new_session'] as const) {
    await swap(reset, { reset });
    assert.equal(await known(), blocks, reset);
  }
  await swap('all');
  assert.equal(await known(), 0);
});
