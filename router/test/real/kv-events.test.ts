import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { KvIndex } from '../../src/choose/kv-index/kv-index.ts';
import { rootOf } from '../../src/choose/kv-index/token-chain.ts';
import { type KvEventFeed, type KvLoss, openKvEventFeed } from '../../src/engines/kv-events-feed.ts';
import { kvMatch } from '../harness/kv-match.ts';
import { call, open } from './call.ts';
import { startSglang, startVllm, type Engine } from './engines.ts';
import { whyNoEngines } from './installed.ts';
import { startRouter } from './router.ts';
import { until } from './until.ts';

const skip = await whyNoEngines();

const SOON_MS = 20_000;
const promptOf = (seed: number): number[] => Array.from({ length: 100 }, (_, i) => 20 + ((i * 53 + seed * 7) % 400));

const engines = [
  { kind: 'vllm', start: startVllm, reset: '/reset_prefix_cache', blockSize: 32 },
  { kind: 'sglang', start: startSglang, reset: '/flush_cache', blockSize: 1 },
] as const;

for (const { kind, start, reset, blockSize } of engines) {
  describe(`what a real ${kind} tells of its prefix cache`, { skip }, () => {
    // Addresses that no other process of this machine can have meanwhile.
    const folder = mkdtempSync(join(tmpdir(), 'turnout-kv-'));
    const endpoint = `ipc://${folder}/events`;
    const replayEndpoint = `ipc://${folder}/replay`;
    const index = new KvIndex();
    const lost: KvLoss[] = [];
    const feeds: KvEventFeed[] = [];
    let engine: Engine;

    before(async () => {
      const config = { publisher: 'zmq', endpoint, replay_endpoint: replayEndpoint };
      const enabled = kind === 'vllm' ? { enable_kv_cache_events: true } : {};
      engine = await start({ args: ['--kv-events-config', JSON.stringify({ ...config, ...enabled })] });
      await listen(0);
    });

    after(async () => {
      await Promise.all(feeds.map((feed) => feed.close()));
      await engine?.stop();
      rmSync(folder, { recursive: true, force: true });
    });

    async function listen(slot: number): Promise<void> {
      const feed = await openKvEventFeed(
        { endpoint, replayEndpoint },
        {
          onEvents: (events) => events.forEach((event) => index.apply(slot, event)),
          onLost: (why) => lost.push(why),
        },
      );
      if (typeof feed === 'string') assert.fail(feed);
      feeds.push(feed);
    }

    /** @returns the tokens of its answer, and how many of the prompt's it had in its cache. */
    async function ask(prompt: number[], fields: object = {}): Promise<{ tokens: number[]; cached: number }> {
      const asked = { model: 'tiny', prompt, max_tokens: 40, temperature: 0, ignore_eos: true, return_token_ids: true };
      const answer = await call(engine.url, '/v1/completions', { body: { ...asked, ...fields } });
      assert.equal(answer.status, 200, answer.body);
      const { choices, usage } = JSON.parse(answer.body) as {
        choices: { token_ids: number[] }[];
        usage: { prompt_tokens_details?: { cached_tokens?: number } | null };
      };
      return { tokens: choices[0]!.token_ids, cached: usage.prompt_tokens_details?.cached_tokens ?? 0 };
    }

    const wholeBlocks = (tokens: number): number => Math.floor(tokens / blockSize) * blockSize;
    const matched = (slot: number, tokens: number[]): number => kvMatch(index, slot, Int32Array.from(tokens));

    test('a prompt and its answer are known, block by block, as the engine itself finds them', async () => {
      const prompt = promptOf(1);
      const { tokens } = await ask(prompt);
      // The last token is told, not computed.
      const known = [...prompt, ...tokens.slice(0, -1)];
      await until('all its blocks are known', SOON_MS, () => matched(0, known) === wholeBlocks(known.length));
      assert.equal(matched(0, prompt), wholeBlocks(prompt.length));
      assert.equal(index.stateOf(0).blockSize, blockSize);
      assert.equal(matched(0, promptOf(2)), 0);
      const turn = [...known, 7, 7, 7];
      assert.equal((await ask(turn)).cached, matched(0, known));
      assert.equal(index.stateOf(0).unplaced, 0);
    });

    test('a salted prompt is known by its salt only', async () => {
      const prompt = promptOf(3);
      await ask(prompt, { cache_salt: 'one' });
      const one = rootOf(null, 'one');
      const tokenIds = Int32Array.from(prompt);
      await until('it is known', SOON_MS, () => kvMatch(index, 0, tokenIds, one) === wholeBlocks(prompt.length));
      assert.equal(matched(0, prompt), 0);
      assert.equal(kvMatch(index, 0, tokenIds, rootOf(null, 'two')), 0);
    });

    test('a subscriber that joins later gets the earlier events', async () => {
      await listen(1);
      const prompt = promptOf(1);
      await until('it is known to him too', SOON_MS, () => matched(1, prompt) === wholeBlocks(prompt.length));
      await until('all of it', SOON_MS, () => index.stateOf(1).blocks === index.stateOf(0).blocks);
      assert.equal(index.stateOf(1).unplaced, 0);
    });

    test('a router sends a prompt to where it is cached, though more is under way there', async (t) => {
      const other = createServer((asked, answer) => void asked.resume().once('end', () => answer.end('elsewhere')));
      other.listen(0, '127.0.0.1');
      await once(other, 'listening');
      t.after(() => other.close());
      const otherUrl = `http://127.0.0.1:${(other.address() as AddressInfo).port}`;
      const pair = [`${engine.url}=${endpoint}`, `replay=${replayEndpoint}`];
      const router = await startRouter(
        [otherUrl, engine.url],
        ['--policy', 'kv_aware', '--kv-event-endpoints', ...pair],
      );
      t.after(() => router.stop());
      const prompt = [...promptOf(5), ...promptOf(6), ...promptOf(7)];
      const through = async (asked: unknown): Promise<boolean> => {
        const body = { model: 'tiny', prompt: asked, max_tokens: 1 };
        const answer = await call(router.url, '/v1/completions', { body });
        assert.equal(answer.status, 200, answer.body);
        return answer.body !== 'elsewhere';
      };
      await ask(prompt);
      await until('its blocks are known', SOON_MS, () => matched(0, prompt) === wholeBlocks(prompt.length));
      await until('and to the router', SOON_MS, async () => {
        const { policies } = JSON.parse((await call(router.url, '/policies')).body) as {
          policies: { state: { byWorker: Record<string, { blocks: number }> } }[];
        };
        return policies[0]!.state.byWorker[engine.url]!.blocks === index.stateOf(0).blocks;
      });
      for (let i = 0; i < 3; i++) assert.ok(await through(prompt), 'whose turn it is makes no difference');
      const load = await open(router.url, '/v1/completions', {
        body: { model: 'tiny', prompt: prompt.slice(0, 64), max_tokens: 1_500, ignore_eos: true, stream: true },
      });
      await load.seen(1);
      for (let i = 0; i < 3; i++) {
        assert.ok(await through([...prompt, 7, 7, 7]), 'what is cached wins over what is under way');
        assert.equal(
          await through('once upon a time'),
          false,
          'text is not looked up: it goes where less is under way',
        );
        assert.equal(await through(promptOf(8)), false, 'what is cached nowhere goes where less is under way');
      }
      assert.equal(await engine.running(), 1);
      load.leave();
    });

    test('when the engine empties its cache, only what it computes after that is known', async () => {
      await until('it is idle', SOON_MS, async () => (await engine.running()) === 0);
      assert.equal((await call(engine.url, reset, { method: 'POST' })).status, 200);
      // vLLM tells of it with the next step it makes, not before.
      const { tokens } = await ask(promptOf(4));
      const known = [...promptOf(4), ...tokens.slice(0, -1)];
      await until('the next prompt is known', SOON_MS, () => matched(0, known) === wholeBlocks(known.length));
      for (const slot of [0, 1]) {
        await until(
          'all else is forgotten',
          SOON_MS,
          () => index.stateOf(slot).blocks === Math.floor(known.length / blockSize),
        );
        assert.deepEqual([matched(slot, promptOf(1)), matched(slot, known)], [0, wholeBlocks(known.length)]);
      }
      assert.deepEqual(lost, []);
      for (const { counts } of feeds) assert.deepEqual([counts.badFrames, counts.skippedEvents], [0, 0]);
    });
  });
}
