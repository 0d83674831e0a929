import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { seededRandom, type Random } from '../../src/kit/rng.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { call, open } from './call.ts';
import { startSglang, type Engine } from './engines.ts';
import { folderOf, whyNoEngines } from './installed.ts';
import { SAMPLED_TWICE, assertClose, assertExported, assertRetrieved, turnsOf } from './kept.ts';
import {
  assertGoesOn,
  emptyLine,
  encodedBy,
  END_OF_TURN,
  generatedBy,
  grown,
  lettersOnly,
  type Generated,
  type Line,
} from './line.ts';
import { startRouter, type Router } from './router.ts';
import { tapOn, type Heard, type Tap } from './tap.ts';
import { until } from './until.ts';

const skip = await whyNoEngines();

const TRAJECTORIES = 20;
/** Under way at once. */
const WIDE = 4;

const snippets = [
  'What is seven times six?',
  ' the cache answers fastest',
  'for (let i = 0; i < n; i++) {\n\treturn x?.[i] ?? "é";\n}\n',
  '{"city": "München", "temp": -3.5e2, "ok": [true, null]}',
  '<tool_call>\n{"name": "search", "arguments": {"q": "日本語"}}\n</tool_call>',
  '👩‍👩‍👧‍👦 ünï cafe\u0301 \u200b مرحبا \ufffd',
  '  \n\n  ',
  '<|im_star',
  'right before the\r\nnext',
];

const pick = <T>(random: Random, list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
const words = (random: Random): string =>
  Array.from({ length: 1 + Math.floor(random() * 3) }, () => pick(random, snippets)).join(random() < 0.5 ? ' ' : '');

describe('the radix tree before real SGLangs', { skip }, () => {
  /** One writes streams with all so far in each event, the other with what is new. */
  const sides: { engine: Engine; tap: Tap }[] = [];
  const folder = mkdtempSync(join(tmpdir(), 'turnout-exact-'));
  let router: Router;
  let asked = 0;

  before(async () => {
    const engines = await Promise.all([
      startSglang({ model: 'moe' }),
      startSglang({ model: 'moe', args: ['--incremental-streaming-output'] }),
    ]);
    for (const engine of engines) sides.push({ engine, tap: await tapOn(engine.url) });
    router = await startRouter(
      sides.map(({ tap }) => tap.url),
      ['--tokenizer-path', folderOf('moe'), '--plugin', 'radix-tree', '--data-dir', folder],
    );
  });

  after(async () => {
    await router?.stop();
    for (const { engine, tap } of sides) {
      tap.close();
      await engine.stop();
    }
    rmSync(folder, { recursive: true });
  });

  /** Asks and finds what passed the tap: the client has the engine's own answer, byte by byte. */
  async function ask(session: string, body: object): Promise<{ engine: string; heard: Heard; said: Generated[] }> {
    const turn = String(asked++);
    const answer = await call(router.url, '/generate', { body, headers: { 'x-session-id': session, 'x-turn': turn } });
    assert.equal(answer.status, 200, answer.body);
    assert.ok(answer.isComplete);
    for (const { engine, tap } of sides) {
      const heard = tap.all('/generate').find(({ headers }) => headers['x-turn'] === turn);
      if (heard === undefined) continue;
      assert.equal(answer.body, heard.answered);
      return { engine: engine.url, heard, said: generatedBy(heard.answered) };
    }
    throw new Error(`no engine was asked turn ${turn}`);
  }

  const idsAsked = (heard: Heard): number[] => (JSON.parse(heard.asked) as { input_ids: number[] }).input_ids;

  async function assertSaidDirectly(engine: string, heard: Heard, said: Generated): Promise<void> {
    const body = { ...(JSON.parse(heard.asked) as object), stream: false };
    const [direct] = generatedBy((await call(engine, '/generate', { body })).body);
    assert.deepEqual(said.ids, direct!.ids);
    assert.equal(said.text, direct!.text);
    assertClose(said.logprobs, direct!.logprobs, SAMPLED_TWICE);
  }

  /** One turn: the line, with more text, goes on by what an engine samples. */
  async function turn(session: string, line: Line, more: string, params: object, isStream = false): Promise<Line> {
    const text = line.text + more;
    const body = { text, sampling_params: params, return_logprob: true, stream: isStream };
    const { engine, heard, said } = await ask(session, body);
    const { text: none, ...rest } = JSON.parse(heard.asked) as { text?: string };
    assert.equal(none, undefined);
    const ids = idsAsked(heard);
    const { text: _, ...others } = body;
    assert.deepEqual(rest, { ...others, input_ids: ids });
    const kept = await assertGoesOn(engine, line, more, ids);
    assert.equal(said[0]!.promptTokens, ids.length);
    if ('temperature' in params && params.temperature === 0) await assertSaidDirectly(engine, heard, said[0]!);
    return grown(line, more, kept, ids, said[0]!);
  }

  const opening = (text: string): string => `<|im_start|>user\n${text}<|im_end|>\n<|im_start|>assistant\n`;

  test(`${TRAJECTORIES} trajectories: their text gives back the ids that engines sampled`, async (t) => {
    const seen = { turns: 0, branches: 0, tokens: 0, stops: 0, halves: 0, drifted: 0 };
    const trajectory = async (n: number): Promise<void> => {
      const random = seededRandom(n + 1);
      const session = `t${n}`;
      const ends: Line[] = [];
      // Of equal samples the newer one counts.
      let tolerance = 0;
      let line = emptyLine;
      let more = opening(`${n} ${words(random)}`);
      for (let turns = 3 + Math.floor(random() * 2); turns > 0; turns--) {
        const params = {
          temperature: random() < 0.5 ? 0 : 1,
          max_new_tokens: 4 + Math.floor(random() * 40),
          skip_special_tokens: random() < 0.7,
          // Left alone, the tiny model hardly ever ends its turn.
          logit_bias: { ...(n % 2 === 0 ? lettersOnly : {}), ...(n % 3 === 0 ? { [END_OF_TURN]: 8 } : {}) },
        };
        const from = line;
        line = await turn(session, line, more, params, random() < 0.5);
        const said = line.text.slice(from.text.length + more.length);
        const sampled = line.ids.slice(line.mask.lastIndexOf(0) + 1);
        seen.turns++;
        seen.tokens += sampled.length;
        if (sampled.at(-1) === END_OF_TURN) seen.stops++;
        if (said.includes('\ufffd')) seen.halves++;
        const [engine] = sides;
        if ((await encodedBy(engine!.engine.url, line.text)).join() !== line.ids.join()) seen.drifted++;
        // Another sample of the same prompt: a branch.
        if (random() < 0.2) {
          const other = await turn(session, from, more, { ...params, temperature: 1.2 });
          seen.branches++;
          if (other.ids.join() === line.ids.join()) tolerance = Number.POSITIVE_INFINITY;
          else ends.push(other);
        }
        if (said === '') break;
        const closing = pick(random, ['<|im_end|>', '<|im_end|>', '', '\n']);
        const role = pick(random, ['tool', 'user']);
        more = `${closing}\n<|im_start|>${role}\n${words(random)}<|im_end|>\n<|im_start|>assistant\n`;
      }
      ends.push(line);
      for (const end of ends) {
        await assertRetrieved(router.url, end, tolerance);
        await assertExported(router.url, session, end, tolerance);
      }
    };
    let next = 0;
    await Promise.all(
      Array.from({ length: WIDE }, async () => {
        while (next < TRAJECTORIES) await trajectory(next++);
      }),
    );
    // Everything that can happen was among them.
    for (const [kind, count] of Object.entries(seen)) assert.ok(count > 0, kind);
    t.diagnostic(JSON.stringify(seen));
    const stats = await call(router.url, '/radix_tree/stats');
    const { uncaptured_answers: uncaptured, failures } = JSON.parse(stats.body) as Record<string, number>;
    assert.deepEqual([uncaptured, failures], [0, 0], stats.body);
  });

  test('lists and samples are separated, each with its own tokens', async () => {
    const texts = [opening('list one é'), opening('list two 日本')];
    const params = { temperature: 1, max_new_tokens: 12, n: 2 };
    const { engine, heard, said } = await ask('list', { text: texts, sampling_params: params, return_logprob: true });
    assert.equal(said.length, 4);
    const { input_ids: ids } = JSON.parse(heard.asked) as { input_ids: number[][] };
    for (const [i, text] of texts.entries()) assert.deepEqual(ids[i], await encodedBy(engine, text));
    for (const [i, one] of said.entries()) {
      const at = Math.floor(i / 2);
      const line = grown(emptyLine, texts[at]!, 0, ids[at]!, one);
      await assertRetrieved(router.url, line, SAMPLED_TWICE);
    }
    await turnsOf(router.url, 'list', 4);
  });

  for (const kind of ['whole letters', 'broken letters'] as const) {
    test(`what stopped a turn of ${kind} is one of its tokens, whether its text is sent back or not`, async () => {
      const bias = kind === 'whole letters' ? { logit_bias: lettersOnly } : {};
      const params = { temperature: 0, max_new_tokens: 40, ignore_eos: true, ...bias };
      const prompt = opening('Which way?');
      const whole = await turn(`whole ${kind}`, emptyLine, prompt, params);
      const asked = whole.mask.indexOf(1);
      const textOf = async (count: number): Promise<string> => {
        const body = { text: prompt, sampling_params: { ...params, max_new_tokens: count } };
        return generatedBy((await call(sides[0]!.engine.url, '/generate', { body })).body)[0]!.text;
      };
      // The text of three tokens in the middle, each with some of it, where it comes up for the first time.
      let seen = 7;
      let [before, stop] = ['', ''];
      while (stop === '') {
        seen++;
        assert.ok(seen < 36, 'there is such a text');
        const texts: string[] = [];
        for (let i = 0; i <= 3; i++) texts.push(await textOf(seen + i));
        before = texts[0]!;
        const isTold = texts.every((text, i) => i === 0 || (text > texts[i - 1]! && text.startsWith(texts[i - 1]!)));
        const added = texts[3]!.slice(before.length);
        const isFirst = texts[3]!.indexOf(added) === before.length;
        const isMeant = kind === 'whole letters' || before.includes('\ufffd');
        if (isTold && isFirst && isMeant && !added.includes('\ufffd')) stop = added;
      }
      const known = whole.ids.slice(0, asked + seen + 3);
      for (const isStream of [false, true]) {
        const line = await turn(`${kind} ${isStream}`, emptyLine, prompt, { ...params, stop: [stop] }, isStream);
        assert.equal(line.text, prompt + before);
        assert.deepEqual(line.ids, known);
        await assertRetrieved(router.url, line, SAMPLED_TWICE);
        const short = { temperature: 0, max_new_tokens: 5, ignore_eos: true };
        const sentBack = await ask('sent back', { text: `${line.text}${stop}\n4 5`, sampling_params: short });
        const more = await encodedBy(sentBack.engine, '\n4 5');
        assert.deepEqual(idsAsked(sentBack.heard), [...known, ...more]);
        const leftOut = await ask('left out', { text: `${line.text}\n4 5`, sampling_params: short });
        assert.deepEqual(idsAsked(leftOut.heard), [...known.slice(0, -3), ...more]);
      }
    });
  }

  test('an aborted generation goes on from the tokens that it had', async () => {
    for (const isStream of [false, true]) {
      const session = `aborted-${isStream}`;
      const rid = `rid-${isStream}`;
      const params = { temperature: 0, max_new_tokens: 1800, ignore_eos: true, logit_bias: lettersOnly };
      const prompt = opening(`abort ${isStream}`);
      const asking = ask(session, {
        text: prompt,
        rid,
        sampling_params: params,
        return_logprob: true,
        stream: isStream,
      });
      await until('it has begun', 30_000, async () => {
        const running = await Promise.all(sides.map(({ engine }) => engine.running()));
        return running.some((count) => count > 0);
      });
      // Engines make tokens for all of their requests together: when these have theirs, it has some.
      const beside = { input_ids: [10, 20], sampling_params: { max_new_tokens: 8, ignore_eos: true } };
      await Promise.all(sides.map((side) => call(side.engine.url, '/generate', { body: beside })));
      assert.equal((await call(router.url, '/abort_request', { body: { rid } })).status, 200);
      const { engine, heard, said } = await asking;
      assert.equal(said[0]!.finish, 'abort');
      assert.ok(said[0]!.ids.length > 0 && said[0]!.ids.length < 1800, `${said[0]!.ids.length} tokens`);
      const ids = await encodedBy(engine, prompt);
      assert.deepEqual(idsAsked(heard), ids);
      const line = grown(emptyLine, prompt, 0, ids, said[0]!);
      await assertRetrieved(router.url, line);
      await assertExported(router.url, session, line);
      const resumed = await turn(session, line, '', { ...params, max_new_tokens: 8 });
      assert.ok(resumed.ids.length > line.ids.length);
      const [aborted] = await turnsOf(router.url, session, 2);
      assert.equal(aborted!.finish_reason, 'abort');
    }
  });

  test('a stream that its client leaves keeps what came', async () => {
    const params = { temperature: 0, max_new_tokens: 1800, ignore_eos: true, logit_bias: lettersOnly };
    const prompt = opening('left alone');
    const body = { text: prompt, sampling_params: params, return_logprob: true, stream: true };
    const stream = await open(router.url, '/generate', { body, headers: { 'x-session-id': 'left' } });
    await stream.seen(20);
    stream.leave();
    const [turn] = await turnsOf(router.url, 'left', 1);
    const ids = await encodedBy(sides[0]!.engine.url, prompt);
    assert.deepEqual(turn!.tokens.slice(0, ids.length), ids);
    const sampled = turn!.tokens.slice(ids.length);
    assert.ok(sampled.length >= 19 && sampled.length < 1800, `${sampled.length} tokens`);
    const direct = { input_ids: ids, sampling_params: { ...params, max_new_tokens: sampled.length } };
    const [said] = generatedBy((await call(sides[0]!.engine.url, '/generate', { body: direct })).body);
    assert.deepEqual(sampled, said!.ids);
    assert.equal(turn!.finish_reason, 'abort');
  });

  test('an engine with another tokenizer is refused', async () => {
    const other = join(folder, 'other');
    mkdirSync(other);
    writeTokenizer(other);
    const args = ['--tokenizer-path', other, '--plugin', 'radix-tree'];
    const refusing = await startRouter([sides[0]!.tap.url], args);
    try {
      const before = sides[0]!.tap.all('/generate').length;
      const answer = await call(refusing.url, '/generate', { body: { text: 'a' } });
      assert.equal(answer.status, 500);
      assert.equal(answer.headers['x-turnout-error'], 'tokenizer_mismatch');
      assert.match(answer.body, /differs from token \d+/);
      assert.equal(sides[0]!.tap.all('/generate').length, before);
      // The fleet's own router has compared all the texts, and found them the same.
      assert.ok(sides.every(({ tap }) => tap.all('/tokenize').length >= 12));
    } finally {
      await refusing.stop();
    }
  });
});
