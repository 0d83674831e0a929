import assert from 'node:assert/strict';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { pino } from 'pino';
import { startSimEngine } from '../../../simulator/src/engine.ts';
import type { SimOptions } from '../../../simulator/src/sim-options.ts';
import type { FinishedRecord } from '../../../simulator/src/model/sequence.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import type { RouterParts } from '../../src/router.ts';
import { SqliteStore } from '../../src/recorder/thread/store/sqlite.ts';
import { readRecording } from '../../src/recorder/replay/recording.ts';
import { turnout } from '../cli/turnout.ts';
import { startRespServer } from '../harness/resp-server.ts';
import { type RouterOptions, startTestRouter } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';

interface Answer {
  readonly text: string;
  readonly output_ids: number[];
}

/** A simulated engine that logs what it sampled, behind a router that captures. */
async function scene(t: TestContext, options: RouterOptions, parts: RouterParts = {}, sim: Partial<SimOptions> = {}) {
  const log: FinishedRecord[] = [];
  const engine = await startSimEngine({
    timeScale: 0,
    variedSampling: true,
    onFinished: (record) => log.push(record),
    ...sim,
  });
  t.after(() => engine.close());
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const plugin = ['radix-tree'];
  const router = await startTestRouter(t, { workerUrls: [engine.url], tokenizerPath, plugin, ...options }, parts);
  const ask = (session: string, body: object): Promise<Response> =>
    fetch(`${router.url}/generate`, {
      method: 'POST',
      headers: { 'x-session-id': session },
      body: JSON.stringify({ return_logprob: true, sampling_params: { max_new_tokens: 8 }, ...body }),
    });
  return { router, log, ask };
}

test('what was captured is exported as the engine sampled it, with the requests to replay, while the router runs', async (t) => {
  const dataDir = temporaryFolder(t);
  const { router, log, ask } = await scene(t, { dataDir, captureBodies: true });
  for (const session of ['a', 'b']) {
    let text = `<|im_start|>user\nWhat is ${session}?<|im_end|>\n<|im_start|>assistant\n`;
    for (let turn = 0; turn < 3; turn++) {
      const answer = (await (await ask(session, { text })).json()) as Answer;
      text += `${answer.text}<|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n`;
    }
  }
  await until('all turns are kept', async () => {
    const page = (await (await fetch(`${router.url}/metrics`)).text()).match(/^turnout_trajectory_stored_total (\d+)/m);
    return page?.[1] === '6';
  });
  const file = join(dataDir, 'out.jsonl');
  assert.equal(await turnout(t, ['export', '--format', 'jsonl', '--data-dir', dataDir, '-o', file]).ended, 0);
  const { calls, withoutRequest } = await readRecording(file);
  assert.equal(withoutRequest, 0);
  assert.deepEqual(
    calls.map(({ samples }) => samples[0]!.ids),
    log.map(({ outputIds }) => outputIds),
    "position by position, by the engine's own log",
  );
  for (const { body } of calls) assert.match(body.toString(), /^\{"return_logprob":true.*"text":"<\|im_start\|>user/);
  const listed = (await (await fetch(`${router.url}/trajectories`)).json()) as { trajectories: { turns: number }[] };
  assert.deepEqual(
    listed.trajectories.map((each) => each.turns),
    [3, 3],
  );
});

test('requests and answers that are kept stay as they passed, whatever passes after them', async (t) => {
  for (const dataDir of [undefined, temporaryFolder(t)]) {
    const { router, ask } = await scene(t, { captureBodies: true, ...(dataDir === undefined ? {} : { dataDir }) });
    const passed: { request: string; answer: string }[] = [];
    for (let i = 0; i < 12; i++) {
      const ids = Array.from({ length: i === 6 ? 9_000 : 3 }, (_, k) => 40 + i + (k % 9));
      const prompt = i % 2 === 0 ? { input_ids: ids } : { text: `Question ${i}.` };
      const answer = await (await ask(`s${i}`, prompt)).text();
      passed.push({
        request: JSON.stringify({ return_logprob: true, sampling_params: { max_new_tokens: 8 }, ...prompt }),
        answer,
      });
    }
    await until('all turns are kept', async () => {
      const { trajectories } = (await (await fetch(`${router.url}/trajectories`)).json()) as { trajectories: object[] };
      return trajectories.length === passed.length;
    });
    for (const [i, { request, answer }] of passed.entries()) {
      const { page } = (await (await fetch(`${router.url}/trajectories/s${i}`)).json()) as { page: object[] };
      assert.deepEqual(page, [{ ...page[0], request, answer }]);
    }
  }
});

test('a store that went away fails no request, unless it has to be there', async (t) => {
  const server = await startRespServer(t);
  const lenient = await scene(t, { store: server.url });
  const strict = await scene(t, { store: server.url, captureRequired: true });
  for (const { ask } of [lenient, strict]) assert.equal((await ask('a', { text: 'One.' })).status, 200);
  await server.stop();
  assert.equal((await lenient.ask('b', { text: 'Two.' })).status, 200);
  // It is known as soon as there is something to write.
  await until('what must be captured is refused', async () => {
    const response = await strict.ask('c', { text: 'Three.' });
    if (response.status === 200) return false;
    assert.equal(response.status, 503);
    assert.equal(response.headers.get('x-turnout-error'), 'capture_failed');
    assert.match(await response.text(), /Trajectories can't be kept now, and --capture-required is set/);
    return true;
  });
  assert.equal((await lenient.ask('c', { text: 'Three.' })).status, 200);
  await server.start();
  await until('the store is back', async () => (await strict.ask('d', { text: 'Four.' })).status === 200);
  await until('nothing is lost of what was captured meanwhile', async () => {
    const response = await fetch(`${lenient.router.url}/trajectories`);
    // Its store may not be back yet.
    if (response.status !== 200) return false;
    const { trajectories } = (await response.json()) as { trajectories: { session: string }[] };
    return ['a', 'b', 'c', 'd'].every((name) => trajectories.some(({ session }) => session === name));
  });
});

test('a store that takes nothing is in the log: as it begins, when it is over, and what was lost at a stop', async (t) => {
  const lines: string[] = [];
  const log = pino({ level: 'info' }, { write: (line: string) => void lines.push(line) });
  const said = (words: string): boolean => lines.some((line) => line.includes(words));
  const server = await startRespServer(t);
  const { router, ask } = await scene(t, { store: server.url }, { log });
  const fails = async (session: string): Promise<void> => {
    await server.stop();
    await ask(session, { text: 'One.' });
    await until('it is said', () => said('trajectory store is failing: turns are buffered'));
  };
  await fails('a');
  await server.start();
  await until('that it is over is said', () => said('trajectory store works again'));
  lines.length = 0;
  await fails('b');
  await router.close();
  assert.match(lines.at(-1)!, /"lost":1,.*trajectory store is failing: the last turns or ends are lost/);
});

test('a stop waits for the last turns longer than for a plugin', async (t) => {
  const dataDir = temporaryFolder(t);
  const { router, ask } = await scene(t, { dataDir, storeWait: 'off', pluginTimeoutMs: 1 });
  assert.equal((await ask('a', { text: 'One.' })).status, 200);
  await router.close();
  const store = new SqliteStore(dataDir, true);
  t.after(() => store.close());
  assert.equal(store.newest({ session: 'a', limit: 9 }).length, 1);
});

test('what is evicted before its session is over is in the log', async (t) => {
  const lines: string[] = [];
  const log = pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) });
  const { ask } = await scene(t, { radixMaxBytes: 65_536, storeMemoryBytes: 65_536 }, { log });
  for (let n = 0; n < 60; n++) await ask(`session ${n}`, { text: `${n} is a number. `.repeat(20) });
  for (const words of [
    /"sessions":\d+,"maxBytes":65536,.*sessions that are not over were evicted from memory/,
    /"evictedTurns":\d+,"lostPrompts":0,"maxBytes":65536,.*turns of sessions that are not over were evicted from the token trees/,
  ])
    await until(`it says ${String(words)}`, () => lines.some((line) => words.test(line)));
});

test('a replay asks once for what was asked once, finds all samples of it, and has chats tell their ids', async (t) => {
  const dataDir = temporaryFolder(t);
  const options = { dataDir, captureBodies: true, captureChat: true, disableHealthCheck: false };
  const { router, log, ask } = await scene(t, options, {}, { variedSampling: false });
  await until('the engine is known', () => router.fleet.workers.every(({ models }) => models !== null));
  const sampling = { max_new_tokens: 8, n: 2 };
  assert.equal((await ask('', { text: ['One.', 'Two, three.'], sampling_params: sampling })).status, 200);
  for (const more of [{ n: 2 }, { stream: true }]) {
    const body = JSON.stringify({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 8, ...more });
    const headers = { 'x-session-id': `chat ${JSON.stringify(more)}`.replaceAll(' ', '') };
    const answer = await fetch(`${router.url}/v1/chat/completions`, { method: 'POST', headers, body });
    assert.equal(answer.status, 200, await answer.text());
  }
  const sequences = log.length;
  assert.equal(sequences, 7);
  await until('all turns are kept', async () => {
    const page = await (await fetch(`${router.url}/metrics`)).text();
    return page.includes('\nturnout_trajectory_stored_total 7\n');
  });
  const file = join(dataDir, 'out.jsonl');
  assert.equal(await turnout(t, ['export', '--format', 'jsonl', '--data-dir', dataDir, '-o', file]).ended, 0);
  const [{ url } = { url: '' }] = router.fleet.workers;
  const run = turnout(t, ['replay', file, '--against', url, '--as-fast-as-possible']);
  assert.equal(await run.ended, 0, run.output());
  assert.match(run.output(), /^3 requests in /m);
  assert.match(run.output(), /^same 3, different 0, failed 0, not comparable 0$/m);
  assert.doesNotMatch(run.output(), /have no request/);
  assert.equal(log.length, 2 * sequences);
});
