import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { call, eventsOf } from './call.ts';
import { startSglang, startVllm, type Engine, type EngineOptions } from './engines.ts';
import { folderOf, whyNoEngines } from './installed.ts';
import { startRouter, type Router } from './router.ts';

const skip = await whyNoEngines();

interface Entry {
  readonly token: string | null;
  readonly token_id: number;
  readonly logprob: number | null;
  readonly sampling_logprob: number | null;
  readonly text_offset: number;
  readonly routing_matrix?: string;
}

interface Choice {
  readonly text?: string;
  readonly message?: { readonly content: string };
  readonly delta?: { readonly content?: string };
  readonly logprobs: { readonly content: readonly Entry[] } | null;
  readonly raw_output?: {
    readonly prompt_token_ids: readonly number[];
    readonly completion_token_ids: readonly number[];
  };
}

interface Seen {
  readonly text: string;
  readonly content: readonly Entry[];
  readonly promptIds: readonly number[];
  readonly ids: readonly number[];
}

const prompt = [10, 20, 30, 40, 50];
const messages = [{ role: 'user', content: 'Which way?' }];
// As the fireworks-ai SDK asks.
const full = { model: 'tiny', temperature: 1, top_p: 1, top_k: 0, seed: 7, ignore_eos: true };
const base = { ...full, max_tokens: 12, logprobs: true, raw_output: true };
const forms = [
  ['/v1/completions', { prompt }],
  ['/v1/completions', { prompt: 'One two three.' }],
  ['/v1/chat/completions', { messages }],
] as const;

/** Streamed or not, what a client has in the end. */
async function ask(url: string, path: string, body: object): Promise<Seen> {
  const { status, body: text } = await call(url, path, { body });
  assert.equal(status, 200, text);
  const isStream = text.startsWith('data: ') || text.startsWith(': ');
  const events = isStream ? eventsOf(text).filter((event) => event !== '[DONE]') : [text];
  const choices = events.flatMap((event) => (JSON.parse(event) as { choices: Choice[] }).choices);
  const raw = choices.findLast((choice) => choice.raw_output !== undefined)!.raw_output!;
  const said = ({ text: own, message, delta }: Choice): string => own ?? message?.content ?? delta?.content ?? '';
  return {
    text: choices.map(said).join(''),
    content: choices.flatMap((choice) => choice.logprobs?.content ?? []),
    promptIds: raw.prompt_token_ids,
    ids: raw.completion_token_ids,
  };
}

const engines = [
  ['sglang', startSglang, { model: 'moe', args: ['--enable-return-routed-experts'] }],
  ['vllm', startVllm, { model: 'dense' }],
] as const satisfies readonly (readonly [string, (options: EngineOptions) => Promise<Engine>, EngineOptions])[];

for (const [kind, start, options] of engines) {
  describe(`fields of rollout inference with a real ${kind}`, { skip }, () => {
    let engine: Engine;
    let router: Router;

    before(async () => {
      engine = await start({ ...options, args: [...('args' in options ? options.args : [])] });
      const own = JSON.stringify({ modelConfig: folderOf(options.model) });
      router = await startRouter([engine.url], ['--plugin', `rollout-fields:${own}`]);
    });

    after(async () => {
      await router?.stop();
      await engine?.stop();
    });

    for (const [path, form] of forms) {
      for (const stream of [false, true]) {
        test(`${path} ${JSON.stringify(form)}, stream ${stream}: lists of one length, with and without an echo`, async () => {
          for (const [echo, count] of [
            [{}, 0],
            [{ echo_last: 2 }, 2],
            [{ echo: true }, Infinity],
          ] as const) {
            const { content, ids, promptIds } = await ask(router.url, path, { ...base, ...form, ...echo, stream });
            const echoed = Math.min(count, promptIds.length);
            assert.equal(ids.length, echoed + 12);
            assert.deepEqual(ids.slice(0, echoed), promptIds.slice(promptIds.length - echoed));
            assert.deepEqual(
              content.map((entry) => entry.token_id),
              ids,
            );
            if ('prompt' in form && typeof form.prompt !== 'string') assert.deepEqual(promptIds, prompt);
            for (const [i, { logprob, sampling_logprob: sampling }] of content.entries()) {
              if (i >= echoed) assert.ok(typeof logprob === 'number' && logprob <= 0 && sampling === logprob);
              else assert.equal(sampling, null);
            }
          }
        });
      }
    }

    test('a prompt is scored alone', async () => {
      const { content, ids } = await ask(router.url, '/v1/completions', { ...base, prompt, max_tokens: 0, echo: true });
      assert.deepEqual(ids, prompt);
      assert.equal(content[0]!.logprob, 0);
      assert.ok(content.slice(1).every(({ logprob }) => logprob! < 0));
    });

    if (kind === 'sglang') {
      test('matrices are those of the tensor that the engine returns for the same tokens', async () => {
        const config = JSON.parse(readFileSync(join(folderOf('moe'), 'config.json'), 'utf8')) as {
          num_hidden_layers: number;
          num_experts_per_tok: number;
        };
        const width = config.num_hidden_layers * config.num_experts_per_tok;
        for (const stream of [false, true]) {
          for (const [path, form] of forms) {
            const body = { ...base, ...form, stream, echo: true, include_routing_matrix: true };
            const { content, promptIds, ids } = await ask(router.url, path, body);
            // All of it as a prompt: the experts of each token, by the engine itself.
            const again = { input_ids: ids, sampling_params: { max_new_tokens: 1 }, return_routed_experts: true };
            const direct = JSON.parse((await call(engine.url, '/generate', { body: again })).body) as {
              meta_info: { routed_experts: string };
            };
            const tensor = Buffer.from(direct.meta_info.routed_experts, 'base64');
            const numbers = new Int32Array(new Uint8Array(tensor).buffer);
            assert.equal(content.length, ids.length);
            assert.ok(promptIds.length > 2);
            let differing = 0;
            for (const [i, { routing_matrix: matrix }] of content.entries()) {
              if (i === 0) continue;
              const row = Buffer.from(numbers.subarray((i - 1) * width, i * width));
              const own = Buffer.from(matrix!, 'base64');
              assert.equal(own.length, row.length);
              if (!own.equals(row)) differing++;
            }
            // Prefill and decode round differently: an expert near the edge may be another one.
            assert.ok(differing <= 2, `${differing} of ${content.length} matrices differ`);
          }
        }
      });
    } else {
      test('an engine without routed experts gives the reason', async () => {
        const body = { ...base, prompt, include_routing_matrix: true };
        const { status, body: text } = await call(router.url, '/v1/completions', { body });
        // Of a model without experts the router knows it beforehand.
        assert.ok(status === 400 || status === 501, text);
      });
    }
  });
}
