// A stream that its client cut is continued from the tokens that the client got, however encoding would cut their text.
import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { decode, encode } from '../../../simulator/src/tokens/tokenizer.ts';
import { CLOSE_WAIT_MS } from '../../src/recorder/thread/captures.ts';
import { type EngineRequest, STREAM_HEAD, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { EventReader } from '../harness/stalling-engine.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

const PROMPT = '<|im_start|>user\nSay it.<|im_end|>\n<|im_start|>assistant\n';
const MORE = '<|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n';
/** Encoders make one word of it and of what it stands behind. */
const SAME_WORD = `ten what is of ten${MORE}`;
/** Without a space: encoders begin anew nowhere in it. Letter by letter: no encoder would cut it so. */
const TEXT = 'Whatisoften?Itiswhatis:漢字andsoonandonandonuntilitends.';
const SAMPLED = [...TEXT].flatMap((letter) => encode(letter));

interface Asked {
  readonly input_ids?: number[];
  readonly prompt?: number[];
}

const dialects = {
  '/generate': {
    ask: (text: string) => ({ text, return_logprob: true }),
    askIds: (input_ids: readonly number[]) => ({ input_ids, return_logprob: true }),
    idsOf: ({ input_ids: ids }: Asked) => ids!,
    event: (prompt: number, count: number, finish: string | null) => ({
      text: textOf(count),
      output_ids: SAMPLED.slice(0, count),
      meta_info: {
        prompt_tokens: prompt,
        completion_tokens: count,
        finish_reason: finish === null ? null : { type: finish },
        output_token_logprobs: SAMPLED.slice(0, count).map((id, i) => [-i - 1, id, null]),
      },
    }),
  },
  '/v1/completions': {
    ask: (prompt: string) => ({ prompt }),
    askIds: (prompt: readonly number[]) => ({ prompt }),
    idsOf: ({ prompt: ids }: Asked) => ids!,
    event: (_: number, count: number, finish: string | null) => ({
      choices: [
        {
          index: 0,
          text: textOf(count).slice(textOf(count - 1).length),
          token_ids: [SAMPLED[count - 1]],
          logprobs: { token_logprobs: [-count] },
          finish_reason: finish,
        },
      ],
    }),
  },
} as const;

/** In ASCII, as Python writes JSON. */
const escaped = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;

/** As engines write it: half a letter comes with its other half. */
const textOf = (count: number): string => decode(SAMPLED.slice(0, count)).replace(/\ufffd+$/, '');

async function startScene(t: TestContext, path: keyof typeof dialects) {
  const engine = await startEngine(t);
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const plugin = ['radix-tree:{"verify":false,"completions":true}'];
  const router = await startTestRouter(t, { workerUrls: [engine.url], tokenizerPath, plugin });
  const { event, idsOf } = dialects[path];
  return {
    router,
    ask: (body: object, session: string) =>
      EventReader.open(router.url + path, body, session === '' ? {} : { 'x-session-id': session }),
    /** What the engine was asked. */
    async asked(): Promise<{ request: EngineRequest; ids: number[] }> {
      const request = await engine.next();
      return { request, ids: idsOf(JSON.parse((await request.payload()).toString()) as Asked) };
    },
    begin: ({ request }: { request: EngineRequest }) => request.connection.write(STREAM_HEAD),
    say(
      { request, ids }: { request: EngineRequest; ids: readonly number[] },
      to: number,
      finish: string | null = null,
    ) {
      const json = JSON.stringify(event(ids.length, to, finish));
      request.connection.write(chunk(`data: ${json.replace(/[^ -~]/g, escaped)}\n\n`));
    },
    async turns(session: string, count: number) {
      type Row = { tokens: number[]; parent: string | null; keeps: number; drift: unknown; finish_reason: string };
      let page: Row[] = [];
      await until('the turns are on record', async () => {
        const answer = await fetch(`${router.url}/trajectories/${session}`);
        page = answer.status === 404 ? [] : ((await answer.json()) as { page: Row[] }).page;
        return page.length === count;
      });
      return page;
    },
  };
}

for (const path of ['/generate', '/v1/completions'] as const) {
  const { ask, askIds } = dialects[path];

  /** A stream of which the client gets `got` tokens, and the router `came`. */
  async function cut(t: TestContext, session: string, got: number, came: number, finish: string | null = null) {
    const scene = await startScene(t, path);
    const opening = scene.ask(ask(PROMPT), session);
    const asked = await scene.asked();
    scene.begin(asked);
    const reader = await opening;
    for (let i = 1; i <= came; i++) scene.say(asked, i, i === SAMPLED.length ? finish : null);
    await reader.untilEvents(came);
    reader.close();
    await untilIdle(scene.router);
    // What the client had not read when it left is as if it had not come.
    return { scene, known: [...asked.ids, ...SAMPLED.slice(0, got)] };
  }

  test(`${path}: what a client got of a stream that it cut goes on as it was sampled`, async (t) => {
    for (const [got, more] of [
      [3, MORE],
      [9, SAME_WORD],
      [SAMPLED.length - 20, MORE],
      [SAMPLED.length - 1, SAME_WORD],
    ] as const) {
      const text = textOf(got);
      // Of a letter that is not whole the client has nothing.
      const whole = SAMPLED.findIndex((_, i) => textOf(i).length >= text.length);
      const { scene, known } = await cut(t, 's', whole, Math.min(SAMPLED.length, got + 2));
      assert.equal((await scene.turns('s', 1))[0]!.finish_reason, 'abort');
      const opening = scene.ask(ask(PROMPT + text + more), 's');
      const next = await scene.asked();
      scene.begin(next);
      await opening;
      assert.deepEqual(next.ids, [...known, ...encode(more)], `${got} tokens`);
    }
  });

  test(`${path}: a client that cut its stream before it had the end of it, which the router had`, async (t) => {
    const { scene, known } = await cut(t, 's', 7, SAMPLED.length, 'length');
    await scene.turns('s', 1);
    const opening = scene.ask(ask(PROMPT + textOf(7) + SAME_WORD), 's');
    const next = await scene.asked();
    scene.begin(next);
    const reader = await opening;
    assert.deepEqual(next.ids, [...known, ...encode(SAME_WORD)]);
    scene.say(next, SAMPLED.length, 'length');
    await reader.untilFinish();
    reader.close();
    await untilIdle(scene.router);
    const [, second] = await scene.turns('s', 2);
    assert.equal(second!.keeps, known.length);
    assert.equal(second!.drift, null);
  });

  /** Goes on from a stream that runs. @param closes whether it is closed while the router waits for its end */
  async function goOnEarly(t: TestContext, closes: boolean) {
    const scene = await startScene(t, path);
    const { inFlight } = scene.router.pipeline;
    const first = scene.ask(ask(PROMPT), 's');
    const asked = await scene.asked();
    scene.begin(asked);
    const reader = await first;
    for (let i = 1; i <= 9; i++) scene.say(asked, i);
    await reader.untilEvents(9);
    const beganMs = performance.now();
    const opening = scene.ask(ask(PROMPT + textOf(9) + SAME_WORD), 's');
    await until('the router has both', () => inFlight.size === 2);
    if (closes) {
      reader.close();
      await until('the router knows that it left', () => inFlight.size === 1);
    }
    const waitedMs = performance.now() - beganMs;
    const next = await scene.asked();
    scene.begin(next);
    const again = await opening;
    scene.say(next, 1);
    await again.untilEvents(1);
    again.close();
    if (!closes) await scene.turns('s', 1);
    reader.close();
    await untilIdle(scene.router);
    return { asked, next, waitedMs, turns: await scene.turns('s', 2) };
  }

  test(`${path}: a client that goes on before the router knows that it left goes on from the sampled tokens`, async (t) => {
    let run = await goOnEarly(t, true);
    // On a machine under load the close may come when the router waits no more: then nothing is proved.
    for (let tries = 1; run.waitedMs > CLOSE_WAIT_MS / 2 && tries < 20; tries++) run = await goOnEarly(t, true);
    const { asked, next, turns } = run;
    assert.deepEqual(next.ids, [...asked.ids, ...SAMPLED.slice(0, 9), ...encode(SAME_WORD)]);
    const second = turns.find(({ parent }) => parent !== null);
    assert.deepEqual([second!.keeps, second!.drift], [asked.ids.length + 9, null]);
  });

  test(`${path}: a client that goes on before the router knows that it left and does not close its stream has a drift`, async (t) => {
    const { asked, turns } = await goOnEarly(t, false);
    assert.deepEqual(
      turns.map(({ drift }) => drift),
      [{ kind: 'text', at: asked.ids.length }, null],
    );
  });

  test(`${path}: ids that a client got of a stream that it cut go on as they are`, async (t) => {
    const { scene, known } = await cut(t, 's', 7, 9);
    const opening = scene.ask(askIds([...known, ...encode(MORE)]), 's');
    const next = await scene.asked();
    scene.begin(next);
    const reader = await opening;
    assert.deepEqual(next.ids, [...known, ...encode(MORE)]);
    scene.say(next, 1);
    await reader.untilEvents(1);
    reader.close();
    await untilIdle(scene.router);
    const [, second] = await scene.turns('s', 2);
    assert.deepEqual([second!.keeps, second!.drift], [known.length, null]);
  });

  test(`${path}: text that ends within a token of what was sampled is encoded from there on, and flagged`, async (t) => {
    const scene = await startScene(t, path);
    const first = scene.ask(ask(PROMPT), 's');
    const asked = await scene.asked();
    scene.begin(asked);
    const reader = await first;
    for (let i = 1; i <= SAMPLED.length; i++) scene.say(asked, i);
    await reader.untilEvents(SAMPLED.length);
    reader.close();
    await untilIdle(scene.router);
    // The second byte of the first of three is another one: letters go on together, up to a token that is no whole letter.
    const text = `${TEXT.slice(0, TEXT.indexOf('漢'))}漣`;
    const opening = scene.ask(ask(PROMPT + text + MORE), 's');
    const next = await scene.asked();
    scene.begin(next);
    const again = await opening;
    scene.say(next, 1);
    await again.untilEvents(1);
    again.close();
    await untilIdle(scene.router);
    const known = [...asked.ids, ...SAMPLED.slice(0, TEXT.indexOf('漢'))];
    assert.deepEqual(next.ids, [...known, ...encode(`漣${MORE}`)]);
    const [, second] = await scene.turns('s', 2);
    assert.deepEqual([second!.keeps, second!.drift], [known.length, { kind: 'text', at: known.length }]);
  });
}
