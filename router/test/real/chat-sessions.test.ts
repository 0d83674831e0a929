import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { loadTokenizer } from '../../src/recorder/thread/tokens/load-tokenizer.ts';
import { readSamples } from '../harness/safetensors.ts';
import { call } from './call.ts';
import { type Engine, startSglang, startVllm } from './engines.ts';
import { type EngineKind, folderOf, whyNoEngines } from './installed.ts';
import { type Router, startRouter } from './router.ts';
import { type Tap, tapOn } from './tap.ts';

const skip = await whyNoEngines();

interface Side {
  readonly engine: Engine;
  readonly tap: Tap;
  readonly router: Router;
}

interface Message {
  readonly role: string;
  readonly content: string;
}

const TOKENS = 24;
/** Of an answer that its client leaves: engines take longer for it. */
const LONG = 1_500;
const END = '<|im_end|>';

describe('chat sessions before real engines', { skip }, () => {
  const sides = {} as Record<EngineKind, Side>;

  before(async () => {
    for (const engine of await Promise.all([startVllm(), startSglang()])) {
      const tap = await tapOn(engine.url);
      const args = ['--plugin', 'chat-sessions', '--tokenizer-path', folderOf('dense'), '--plugin-timeout-ms', '60000'];
      sides[engine.kind] = { engine, tap, router: await startRouter([tap.url], args) };
    }
  });

  after(async () => {
    for (const { engine, tap, router } of Object.values(sides)) {
      await router.stop();
      tap.close();
      await engine.stop();
    }
  });

  /** What an engine makes of ids, asked directly: greedy, so that it says the same again. */
  async function sampledBy({ engine }: Side, ids: readonly number[], maxTokens: number): Promise<number[]> {
    if (engine.kind === 'sglang') {
      const sampling_params = { temperature: 0, max_new_tokens: maxTokens };
      const { body } = await call(engine.url, '/generate', { body: { input_ids: ids, sampling_params } });
      return (JSON.parse(body) as { output_ids: number[] }).output_ids;
    }
    const asked = { model: 'tiny', prompt: ids, temperature: 0, max_tokens: maxTokens, return_token_ids: true };
    const { body } = await call(engine.url, '/v1/completions', { body: asked });
    return (JSON.parse(body) as { choices: [{ token_ids: number[] }] }).choices[0].token_ids;
  }

  /** The prompt of a chat. */
  async function tokenizedBy(_: Side, messages: readonly Message[]): Promise<readonly number[]> {
    const tokenizer = await loadTokenizer(folderOf('dense'));
    const text = messages.map(({ role, content }) => `<|im_start|>${role}\n${content}${END}\n`).join('');
    return tokenizer.encode(`${text}<|im_start|>assistant\n`, false);
  }

  for (const kind of ['sglang', 'vllm'] as const) {
    test(`${kind}: a chat of several turns, whole and streamed, goes on from the ids that were sampled`, async () => {
      const side = sides[kind];
      const { router, tap } = side;
      const tokenizer = await loadTokenizer(folderOf('dense'));
      const { session_id: session } = JSON.parse((await call(router.url, '/sessions', { body: {} })).body) as {
        session_id: string;
      };
      const path = kind === 'sglang' ? '/v1/chat/completions' : '/v1/completions';
      const messages: Message[] = [];
      const ids: number[] = [];
      const mask: number[] = [];
      for (let turn = 0; turn < 6; turn++) {
        const closing = turn === 0 ? '' : ids.at(-1) === (await tokenizer.encode(END, false))[0] ? '\n' : `${END}\n`;
        const content = `Which way? ${'é漢'.slice(0, turn % 3)} ${turn}`;
        const asked = await tokenizer.encode(
          `${closing}<|im_start|>user\n${content}${END}\n<|im_start|>assistant\n`,
          false,
        );
        messages.push({ role: 'user', content });
        const stream = turn % 2 === 1;
        const body = { model: 'tiny', messages, stream, temperature: 0, max_tokens: TOKENS };
        const answer = await call(router.url, `/sessions/${session}/v1/chat/completions`, { body });
        assert.equal(answer.status, 200, answer.body);
        for (const name of ['sglext', 'meta_info', '"token_ids":['])
          assert.ok(!answer.body.includes(name), answer.body);

        const sent = JSON.parse(tap.last(path).asked) as { input_ids?: number[]; prompt?: number[] };
        assert.deepEqual(sent.input_ids ?? sent.prompt, [...ids, ...asked]);
        const sampled = await sampledBy(side, [...ids, ...asked], TOKENS);
        ids.push(...asked, ...sampled);
        mask.push(...asked.map(() => 0), ...sampled.map(() => 1));
        messages.push({ role: 'assistant', content: contentOf(answer.body, stream) });
      }
      const response = await fetch(`${router.url}/sessions/${session}/samples`, { method: 'POST', body: '{}' });
      const [sample, ...others] = readSamples(Buffer.from(await response.arrayBuffer()));
      assert.equal(others.length, 0);
      assert.deepEqual(sample!.tokens, ids);
      assert.deepEqual(sample!.mask, mask.slice(mask.indexOf(1)));
      assert.ok(sample!.logprobs.every((logprob, i) => (sample!.mask[i] === 1 ? logprob <= 0 : logprob === 0)));
      assert.ok(sample!.logprobs.some((logprob) => logprob < 0));
    });

    test(`${kind}: of a stream that its client left, the tokens that came are on record`, async () => {
      const side = sides[kind];
      const { router } = side;
      const { session_id: session } = JSON.parse((await call(router.url, '/sessions', { body: {} })).body) as {
        session_id: string;
      };
      const messages = [{ role: 'user', content: 'Which way?' }];
      const body = { model: 'tiny', messages, stream: true, temperature: 0, max_tokens: LONG, ignore_eos: true };
      const url = `${router.url}/sessions/${session}/v1/chat/completions`;
      const stop = new AbortController();
      const headers = { 'content-type': 'application/json' };
      const init = { method: 'POST', headers, body: JSON.stringify(body), signal: stop.signal };
      const reader = (await fetch(url, init)).body!.getReader();
      let text = '';
      while (contentOf(text.slice(0, text.lastIndexOf('\n\n') + 1), true).length < 20) {
        const { value, done } = await reader.read();
        assert.ok(!done, text);
        text += Buffer.from(value).toString();
      }
      stop.abort();
      const asked = (await tokenizedBy(side, messages)).length;
      const samples = async () => {
        const response = await fetch(`${router.url}/sessions/${session}/samples`, { method: 'POST', body: '{}' });
        return readSamples(Buffer.from(await response.arrayBuffer()));
      };
      let kept = await samples();
      for (let i = 0; i < 100 && kept.length === 0; i++) {
        await new Promise((resolve) => setTimeout(resolve, 50));
        kept = await samples();
      }
      assert.equal(kept.length, 1);
      const [{ tokens, mask, logprobs, meta }] = kept as [(typeof kept)[0]];
      const sampled = tokens.slice(asked);
      assert.ok(sampled.length > 0);
      assert.equal(meta.status, 'aborted');
      assert.deepEqual([mask.length, logprobs.length], [sampled.length, sampled.length]);
      assert.deepEqual(sampled, (await sampledBy(side, tokens.slice(0, asked), LONG)).slice(0, sampled.length));
    });

    test(`${kind}: an answer has the members of a plain call's`, async () => {
      const { router, engine } = sides[kind];
      const { session_id: session } = JSON.parse((await call(router.url, '/sessions', { body: {} })).body) as {
        session_id: string;
      };
      const body = { model: 'tiny', messages: [{ role: 'user', content: 'a' }], temperature: 0, max_tokens: 4 };
      const [direct, routed] = await Promise.all([
        call(engine.url, '/v1/chat/completions', { body }),
        call(router.url, `/sessions/${session}/v1/chat/completions`, { body }),
      ]);
      const [plain, ours] = [direct, routed].map(
        (each) => JSON.parse(each.body) as { choices: [Record<string, unknown>] },
      );
      // A completion has no prompt of a chat to tell of.
      const chatOnly = new Set(['prompt_logprobs', 'prompt_token_ids', 'prompt_text']);
      const names = (of: object): string[] =>
        Object.keys(of)
          .filter((name) => !chatOnly.has(name))
          .toSorted();
      assert.deepEqual(names(ours!), names(plain!));
      assert.deepEqual(names(ours!.choices[0]), names(plain!.choices[0]));
      assert.deepEqual(ours!.choices[0].message, plain!.choices[0].message);
    });
  }
});

/** The text of an answer, as a client puts it together. */
function contentOf(body: string, isStream: boolean): string {
  type Answer = { choices: { message?: { content: string }; delta?: { content?: string | null } }[] };
  if (!isStream) return (JSON.parse(body) as Answer).choices[0]!.message!.content;
  let content = '';
  for (const event of body.split('\n\n')) {
    const data = event.replace(/^data: /, '');
    if (data.startsWith('{')) content += (JSON.parse(data) as Answer).choices[0]?.delta?.content ?? '';
  }
  return content;
}
