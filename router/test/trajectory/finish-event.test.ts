// A turn is complete for its session from the event on that says why it ended: before [DONE], and whatever its client does then.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type TestContext, test } from 'node:test';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import type { FinishedRecord } from '../../../simulator/src/model/sequence.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { encode, endOfTurn } from '../../../simulator/src/tokens/tokenizer.ts';
import { type RouterOptions, startTestRouter, untilIdle } from '../harness/router.ts';
import { EventReader, startStallingEngine } from '../harness/stalling-engine.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

const stores: [string, (t: TestContext) => RouterOptions][] = [
  ['memory', () => ({})],
  ['sqlite', (t) => ({ dataDir: temporaryFolder(t) })],
];

interface TurnRow {
  readonly parent: string | null;
  readonly tokens: number[];
  readonly loss_mask: number[];
  readonly output_tokens: number;
  readonly cached_tokens: number | null;
  readonly finish_reason: string | null;
  readonly drift: unknown;
  readonly answer: string | null;
  readonly versions: readonly { readonly version: string | null }[];
}

async function startScene(
  t: TestContext,
  kind: 'sglang' | 'vllm',
  plugin: string,
  options: RouterOptions,
  simOptions: Partial<SimOptions> = {},
) {
  const log: FinishedRecord[] = [];
  const sim = await startSimEngine({
    kind,
    timeScale: 0,
    weightVersion: '7',
    variedSampling: true,
    retokenizationDrift: true,
    onFinished: (record) => log.push(record),
    ...simOptions,
  });
  t.after(() => sim.close());
  const engine = await startStallingEngine(t, sim.url);
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const usual = { workerUrls: [engine.url], tokenizerPath, plugin: [plugin], disableHealthCheck: false };
  const router = await startTestRouter(t, { ...usual, pluginTimeoutMs: 60_000, ...options });
  await until('the router knows its engine', () => router.fleet.workers[0]!.models !== null);
  return {
    engine,
    log,
    router,
    ask: (path: string, body: object, session = 's') =>
      EventReader.open(router.url + path, body, { 'x-session-id': session }),
    async turns(session = 's'): Promise<TurnRow[]> {
      const answer = await fetch(`${router.url}/trajectories/${session}`);
      // None yet, or the store is away.
      return answer.status === 404 || answer.status === 503 ? [] : ((await answer.json()) as { page: TurnRow[] }).page;
    },
  };
}

type Scene = Awaited<ReturnType<typeof startScene>>;

/** How a text is asked for, and what came of it. */
const texts = {
  '/generate': {
    kind: 'sglang',
    plugin: 'radix-tree',
    body: (text: string, n = 1) => ({ text, return_logprob: true, sampling_params: { max_new_tokens: 8, n } }),
    textOf: ({ events }: EventReader) => (events.at(-1) as { text: string }).text,
    // Each event of a sample has all of the events before it.
    isKept: (line: string) => line.includes('"finish_reason":{'),
  },
  '/v1/completions': {
    kind: 'vllm',
    plugin: 'radix-tree:{"completions":true}',
    body: (prompt: string, n = 1) => ({
      prompt,
      max_tokens: 8,
      logprobs: 0,
      n,
      stream_options: { include_usage: true },
    }),
    textOf: ({ events }: EventReader) =>
      events.flatMap(({ choices }) => (choices as { text: string }[]).map(({ text }) => text)).join(''),
    isKept: () => true,
  },
} as const;

const PROMPT = '<|im_start|>user\nWhat is of ten?<|im_end|>\n<|im_start|>assistant\n';
const MORE = '\n<|im_start|>user\nAnd of eleven?<|im_end|>\n<|im_start|>assistant\n';

const linesOf = (stream: string): string[] => stream.split('\n').filter((line) => line.startsWith('data: '));

/** What stands behind a sampled turn in a text that a client writes. */
const behind = ({ outputIds }: FinishedRecord): string => (outputIds.at(-1) === endOfTurn ? '<|im_end|>' : '');

for (const [path, { kind, plugin, body, textOf, isKept }] of Object.entries(texts)) {
  for (const [store, options] of stores) {
    test(`${path}, ${store}: who goes on at the end of a turn, before the end of its stream, goes on exactly`, async (t) => {
      const scene = await startScene(t, kind, plugin, options(t));
      const { engine, log } = scene;
      const first = await scene.ask(path, body(PROMPT));
      await first.untilFinish();
      assert.equal(engine.stalled, 1);
      const more = behind(log[0]!) + MORE;
      const second = await scene.ask(path, body(PROMPT + textOf(first) + more));
      await second.untilFinish();
      const known = [...log[0]!.inputIds, ...log[0]!.outputIds];
      assert.deepEqual(log[1]!.inputIds, [...known, ...encode(MORE)]);
      engine.goOn();
      await Promise.all([first.untilDone(), second.untilDone()]);
      await untilIdle(scene.router);
      const [a, b, ...others] = await scene.turns();
      assert.deepEqual(others, []);
      assert.deepEqual(a!.tokens, known);
      assert.deepEqual(a!.loss_mask, [...log[0]!.inputIds.map(() => 0), ...log[0]!.outputIds.map(() => 1)]);
      assert.deepEqual(b!.tokens, [...log[1]!.inputIds, ...log[1]!.outputIds].slice(known.length));
    });
  }

  test(`${path}: who leaves at the end of a turn has not aborted it`, async (t) => {
    const scene = await startScene(t, kind, plugin, {});
    const { engine, log, router } = scene;
    const reader = await scene.ask(path, body(PROMPT));
    await reader.untilFinish();
    assert.equal(engine.stalled, 1);
    reader.close();
    await untilIdle(router);
    const [turn] = await scene.turns();
    assert.equal(turn!.finish_reason, log[0]!.outputIds.at(-1) === endOfTurn ? 'stop' : 'length');
    assert.deepEqual(turn!.tokens, [...log[0]!.inputIds, ...log[0]!.outputIds]);
  });

  test(`${path}: each of several samples is a turn when it ends, and one has all of the response`, async (t) => {
    const scene = await startScene(t, kind, plugin, { dataDir: temporaryFolder(t), captureBodies: true });
    const { engine, log, router } = scene;
    const reader = await scene.ask(path, body(PROMPT, 3));
    for (let ended = 1; ended <= 3; ended++) {
      await reader.untilFinish(ended);
      assert.equal((await scene.turns()).length, ended);
      await until('the engine waits', () => engine.stalled === 1);
      engine.goOn();
    }
    await reader.untilDone();
    await untilIdle(router);
    const made = (await scene.turns()).map(({ tokens }) => tokens.join());
    assert.deepEqual(
      made.toSorted(),
      log.map(({ inputIds, outputIds }) => [...inputIds, ...outputIds].join()).toSorted(),
    );
    const answers = (await scene.turns()).flatMap(({ answer }) => answer ?? []);
    assert.deepEqual(answers.map(linesOf), [linesOf(reader.text).filter(isKept)]);
  });
}

test('a store that takes nothing holds no answer for long: its end is sent, and counted', async (t) => {
  const dataDir = temporaryFolder(t);
  const scene = await startScene(t, 'sglang', 'radix-tree', { dataDir });
  const { engine, router, log } = scene;
  // Another process that writes to the file.
  const db = new DatabaseSync(join(dataDir, 'trajectories.sqlite'));
  db.exec('BEGIN IMMEDIATE');
  const reader = await scene.ask('/generate', texts['/generate'].body(PROMPT));
  await reader.untilFinish();
  const metrics = await (await fetch(`${router.url}/metrics`)).text();
  assert.match(metrics, /^turnout_trajectory_sent_early_total 1$/m);
  db.exec('ROLLBACK');
  db.close();
  engine.goOn();
  await reader.untilDone();
  await until('the store has the turn', async () => (await scene.turns()).length === 1);
  assert.deepEqual((await scene.turns())[0]!.tokens, [...log[0]!.inputIds, ...log[0]!.outputIds]);
});

/** The message that a client puts together of what came. */
function messageOf({ events }: EventReader, index = 0) {
  type Event = { choices: { index: number; delta: { content?: string | null } }[] };
  const own = (events as unknown as Event[])
    .flatMap(({ choices }) => choices)
    .filter((choice) => choice.index === index);
  return { role: 'assistant', content: own.map(({ delta }) => delta.content ?? '').join('') };
}

const QUESTION = [{ role: 'user', content: 'What is of ten?' }];
const NEXT = { role: 'user', content: 'And of eleven?' };

async function startChat(
  t: TestContext,
  kind: 'sglang' | 'vllm',
  options: RouterOptions = {},
  simOptions: Partial<SimOptions> = {},
) {
  const scene = await startScene(t, kind, 'chat-sessions', { captureChat: true, ...options }, simOptions);
  const chat = (messages: readonly object[], more: object = {}, session = 's') =>
    scene.ask('/v1/chat/completions', { model: 'sim', messages, max_tokens: 8, ...more }, session);
  return { ...scene, chat };
}

const rowsOf = async ({ turns }: Scene) =>
  (await turns()).map(({ tokens, finish_reason, drift }) => ({ tokens, finish_reason, drift }));

for (const kind of ['sglang', 'vllm'] as const) {
  for (const [store, options] of stores) {
    test(`a chat of ${kind}, ${store}: who goes on at the end of a turn, before the end of its stream, goes on exactly`, async (t) => {
      const scene = await startChat(t, kind, options(t));
      const { engine, log, chat, router } = scene;
      const more = { stream_options: { include_usage: true } };
      const first = await chat(QUESTION, more);
      await first.untilFinish();
      assert.equal(engine.stalled, 1);
      const second = await chat([...QUESTION, messageOf(first), NEXT], more);
      await second.untilFinish();
      const known = [...log[0]!.inputIds, ...log[0]!.outputIds];
      const closing = log[0]!.outputIds.at(-1) === endOfTurn ? '' : '<|im_end|>';
      assert.deepEqual(log[1]!.inputIds, [...known, ...encode(closing + MORE)]);
      engine.goOn();
      await Promise.all([first.untilDone(), second.untilDone()]);
      await untilIdle(router);
      await until(
        'counts of the first turn are on record',
        async () => (await scene.turns())[0]?.cached_tokens !== null,
      );
      // The first turn is stored twice. Its version is learned after that, so the second one does not overwrite it.
      const versions = (await scene.turns()).flatMap((turn) => turn.versions.map(({ version }) => version));
      assert.deepEqual(new Set(versions), new Set(['7']));
      const rows = await rowsOf(scene);
      assert.deepEqual(rows[0]!.tokens, known);
      assert.deepEqual(rows[1]!.tokens, [...log[1]!.inputIds, ...log[1]!.outputIds].slice(known.length));
      assert.deepEqual(
        rows.map(({ drift }) => drift),
        [null, null],
      );
    });
  }

  test(`a chat of ${kind}: who leaves at the end of a turn has not aborted it`, async (t) => {
    const scene = await startChat(t, kind);
    const { engine, log, chat, router } = scene;
    const reader = await chat(QUESTION);
    await reader.untilFinish();
    assert.equal(engine.stalled, 1);
    const message = messageOf(reader);
    reader.close();
    await untilIdle(router);
    const { inputIds, outputIds } = log[0]!;
    const isStopped = outputIds.at(-1) === endOfTurn;
    // SGLang's ids never came: whether the text has all tokens is not known.
    const finish_reason = kind === 'sglang' ? null : isStopped ? 'stop' : 'length';
    const told = kind === 'sglang' && isStopped ? outputIds.slice(0, -1) : outputIds;
    const known = [...inputIds, ...told];
    assert.deepEqual(await rowsOf(scene), [{ tokens: known, finish_reason, drift: null }]);
    const next = await chat([...QUESTION, message, NEXT]);
    await next.untilFinish();
    assert.deepEqual(log[1]!.inputIds.slice(0, known.length), known);
  });

  test(`a chat of ${kind}: the answer of a call that is repeated is whole, though the router kept it before its end`, async (t) => {
    const { engine, chat, router } = await startChat(t, kind);
    const headers = { 'x-session-id': 's', 'idempotency-key': 'k' };
    const body = { model: 'sim', messages: QUESTION, max_tokens: 8 };
    const reader = await EventReader.open(`${router.url}/v1/chat/completions`, body, headers);
    await reader.untilFinish();
    const came = reader.text;
    assert.equal(engine.stalled, 1);
    reader.close();
    await untilIdle(router);
    const again = await EventReader.open(`${router.url}/v1/chat/completions`, body, headers);
    await again.untilDone();
    assert.equal(again.text, `${came}data: [DONE]\n\n`);
    assert.ok(chat);
  });
}

/** Words, a special token without text, letters of several bytes, and a byte that is no letter. */
const SAMPLED = [300, 301, 302, 257, 0xc3, 0xa9, 303, 0xe4, 0xbd, 0xa0, 304, 0xe4];

test('a chat of SGLang whose ids come late is on record with what was sampled, or as not complete', async (t) => {
  let count = 0;
  // Of each number of tokens an event, answers that end at each place.
  const scripts = [1, 2, 3, 4].flatMap((eventTokens) =>
    SAMPLED.map((_, i) => ({ ids: [...SAMPLED.slice(0, i), endOfTurn], eventTokens })),
  );
  const scene = await startChat(t, 'sglang', {}, { script: () => scripts[count++] });
  const { chat, engine, log, router } = scene;
  const sessions = scripts.map((_, i) => `late ${i}`);
  const leave = async (session: string): Promise<void> => {
    const reader = await chat(QUESTION, { max_tokens: 64 }, session);
    await reader.untilFinish();
    reader.close();
  };
  await Promise.all(sessions.map(leave));
  await untilIdle(router);
  let exact = 0;
  for (const session of sessions) {
    const { inputIds, outputIds } = log.find((record) => record.session === session)!;
    for (const { tokens, loss_mask: mask, finish_reason: reason, output_tokens: sampled } of await scene.turns(
      session,
    )) {
      const expected = [...inputIds, ...outputIds];
      if (reason === 'stop') exact++;
      else assert.equal(reason, null);
      assert.deepEqual(tokens, reason === 'stop' ? expected : expected.slice(0, tokens.length), String(outputIds));
      assert.equal(mask.filter((bit) => bit === 1).length, sampled);
    }
  }
  assert.ok(exact > 10, `${exact} are complete`);
  engine.goOn();
});
