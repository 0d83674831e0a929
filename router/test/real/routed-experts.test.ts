import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { call, eventsOf, type Answer } from './call.ts';
import { startSglang, type Engine } from './engines.ts';
import { folderOf, whyNoEngines } from './installed.ts';
import { turnsOf, type KeptTurn } from './kept.ts';
import { completedBy, encodedBy } from './line.ts';
import { startRouter, type Router } from './router.ts';
import { tapOn, type Tap } from './tap.ts';

const skip = await whyNoEngines();

/** Of the tiny model: four layers, two experts a token in each, int32. */
const ROW_BYTES = 4 * 2 * 4;
const OUTPUT_TOKENS = 100;

const wanted = { return_routed_experts: true };
const greedy = { temperature: 0, ignore_eos: true };
const native = { sampling_params: { ...greedy, max_new_tokens: OUTPUT_TOKENS }, ...wanted };
const openai = { model: 'tiny', max_tokens: OUTPUT_TOKENS, ...greedy, ...wanted };
const text = 'What is seven times six? "é"';
const messages = [
  { role: 'system', content: 'One two three.' },
  { role: 'user', content: 'Which way? 🚂' },
];

/** All of an answer, decoded, in their order. */
function expertsIn({ status, body }: Answer): Buffer[] {
  assert.equal(status, 200, body);
  return Array.from(body.matchAll(/"routed_experts":"([^"]+)"/g), ([, base64]) => Buffer.from(base64!, 'base64'));
}

describe('routed experts of a real SGLang', { skip }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'turnout-experts-'));
  let engine: Engine;
  let tap: Tap;
  let plain: Router;
  let capturing: Router;

  before(async () => {
    engine = await startSglang({ model: 'moe', args: ['--enable-return-routed-experts'] });
    tap = await tapOn(engine.url);
    plain = await startRouter([tap.url]);
    capturing = await startRouter(
      [tap.url],
      ['--tokenizer-path', folderOf('moe'), '--plugin', 'radix-tree:{"completions":true}', '--data-dir', folder],
    );
  });

  after(async () => {
    await capturing?.stop();
    await plain?.stop();
    tap?.close();
    await engine?.stop();
    rmSync(folder, { recursive: true });
  });

  /** Through both routers the same experts as directly, in an answer that is the engine's own to the byte. */
  async function assertSameExperts(path: string, body: object, count = 1, headers: Record<string, string> = {}) {
    const direct = expertsIn(await call(engine.url, path, { body }));
    assert.equal(direct.length, count);
    for (const each of direct) assert.equal(each.length % ROW_BYTES, 0);
    for (const router of [plain, capturing]) {
      const routed = await call(router.url, path, { body, headers });
      assert.ok(routed.isComplete);
      assert.equal(routed.body, tap.last(path).answered);
      assert.deepEqual(expertsIn(routed), direct);
      if (routed.body.startsWith('data: ')) assert.equal(eventsOf(routed.body).at(-1), '[DONE]');
    }
    return direct;
  }

  const fileOf = ({ routed_experts: kept }: KeptTurn): Buffer => {
    const bytes = readFileSync(join(folder, kept!.file));
    assert.equal(bytes.length, kept!.bytes);
    return bytes;
  };

  for (const stream of [false, true]) {
    const how = stream ? 'streamed' : 'whole';

    test(`of /generate, ${how}: byte-equal, and in a file of raw numbers where they are captured`, async () => {
      for (const [name, prompt] of [
        ['text', { text }],
        ['ids', { input_ids: [10, 20, 30] }],
      ] as const) {
        const session = `generate-${name}-${how}`;
        const body = { ...prompt, ...native, stream };
        const [direct] = await assertSameExperts('/generate', body, 1, { 'x-session-id': session });
        const [turn] = await turnsOf(capturing.url, session, 1);
        assert.equal(direct!.length, (turn!.tokens.length - 1) * ROW_BYTES);
        assert.ok(fileOf(turn!).equals(direct!));
      }
    });

    test(`of /v1/completions, ${how}: byte-equal, and in a file`, async () => {
      const session = `completions-${how}`;
      const body = { ...openai, prompt: text, stream };
      const [direct] = await assertSameExperts('/v1/completions', body, 1, { 'x-session-id': session });
      const [turn] = await turnsOf(capturing.url, session, 1);
      const [said] = completedBy(tap.last('/v1/completions').answered);
      assert.equal(said!.ids.length, OUTPUT_TOKENS);
      assert.deepEqual(turn!.tokens, [...(await encodedBy(engine.url, text)), ...said!.ids]);
      assert.equal(direct!.length, (turn!.tokens.length - 1) * ROW_BYTES);
      assert.ok(fileOf(turn!).equals(direct!));
    });

    test(`of chat, ${how}: byte-equal`, async () => {
      const [direct] = await assertSameExperts('/v1/chat/completions', { ...openai, messages, stream });
      assert.ok(direct!.length > OUTPUT_TOKENS * ROW_BYTES);
    });
  }

  test('of lists and samples: each turn has its own', async () => {
    const body = { ...native, text: [text, 'Left.'], sampling_params: { ...native.sampling_params, n: 2 } };
    const direct = await assertSameExperts('/generate', body, 4, { 'x-session-id': 'list' });
    for (const turn of await turnsOf(capturing.url, 'list', 4)) {
      const bytes = fileOf(turn);
      assert.equal(bytes.length, (turn.tokens.length - 1) * ROW_BYTES);
      assert.ok(direct.some((each) => each.equals(bytes)));
    }
  });

  test('of the next turn, only the rows that are new, as miles asks for them', async () => {
    const first = { ...native, text };
    const session = 'turns';
    const [known] = await assertSameExperts('/generate', first, 1, { 'x-session-id': session });
    const [turn] = await turnsOf(capturing.url, session, 1);
    const rows = known!.length / ROW_BYTES;
    const body = { ...native, input_ids: [...turn!.tokens, 10, 20], routed_experts_start_len: rows };
    const direct = await assertSameExperts('/generate', body, 1, { 'x-session-id': session });
    assert.equal(direct[0]!.length, (3 + OUTPUT_TOKENS - 1) * ROW_BYTES);
    const [, next] = await turnsOf(capturing.url, session, 2);
    assert.ok(fileOf(next!).equals(direct[0]!));
  });
});
