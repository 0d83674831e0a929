import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { seededRandom } from '../../src/kit/rng.ts';
import { decode, encode, endOfTurn } from '../../../simulator/src/tokens/tokenizer.ts';
import {
  type ChatMessage,
  eventsOf,
  type ChatScene,
  messageOf,
  sceneOf,
  startChatScene,
  startEngines,
} from '../harness/chat-scene.ts';
import { metric } from '../admission/metric.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { type Sample, readSamples } from '../harness/safetensors.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { until } from '../harness/within.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import type { FinishedRecord } from '../../../simulator/src/model/sequence.ts';
import { often } from '../harness/often.ts';

/** A history as its client knows it, and the ids that are behind it. */
interface History {
  readonly messages: readonly ChatMessage[];
  readonly ids: readonly number[];
  /** 1 where an engine sampled. */
  readonly mask: readonly number[];
  isContinued: boolean;
}

const START: History = { messages: [], ids: [], mask: [], isContinued: true };
const said = [
  'What is of ten?',
  'def f(x):\n  return {"é": [x**2]}\n',
  '漢字 👩‍👩‍👧',
  '',
  '{"city": "Paris", "n": 9007199254740993}',
  ' the  the\n\n',
];

/** What stands behind a history in the next prompt. */
function behind({ ids, messages }: History, role: string, content: string): number[] {
  const closing = messages.length === 0 ? '' : ids.at(-1) === endOfTurn ? '\n' : '<|im_end|>\n';
  return encode(`${closing}<|im_start|>${role}\n${content}<|im_end|>\n<|im_start|>assistant\n`);
}

/** Asks for the next turn of a history, and holds what the engine did against it. */
async function next(
  scene: ChatScene,
  session: string,
  history: History,
  role: string,
  content: string,
  more: object,
): Promise<History> {
  const asked = behind(history, role, content);
  const messages = [...history.messages, { role, content }];
  const answer = await scene.say(session, messages, more);
  const { inputIds, outputIds } = scene.log.at(-1)!;
  assert.deepEqual(inputIds, [...history.ids, ...asked], decode(inputIds));
  history.isContinued = true;
  return {
    messages: [...messages, answer],
    ids: [...inputIds, ...outputIds],
    mask: [...history.mask, ...asked.map(() => 0), ...outputIds.map(() => 1)],
    isContinued: false,
  };
}

async function samplesOf({ router }: ChatScene, session: string): Promise<Sample[]> {
  const response = await fetch(`${router.url}/sessions/${session}/samples`, { method: 'POST', body: '{}' });
  assert.equal(response.status, 200);
  return readSamples(Buffer.from(await response.arrayBuffer()));
}

/** The samples of a session are its histories that nobody continued, to the token. */
async function checkSamples(scene: ChatScene, session: string, histories: readonly History[]): Promise<void> {
  const samples = await samplesOf(scene, session);
  const leaves = histories.filter(({ isContinued }) => !isContinued);
  const byIds = (a: readonly number[], b: readonly number[]): number => (String(a) < String(b) ? -1 : 1);
  assert.deepEqual(samples.map(({ tokens }) => tokens).toSorted(byIds), leaves.map(({ ids }) => ids).toSorted(byIds));
  for (const { tokens, mask, logprobs, meta } of samples) {
    const leaf = leaves.find(({ ids }) => String(ids) === String(tokens))!;
    const start = leaf.mask.indexOf(1);
    assert.deepEqual(mask, leaf.mask.slice(start));
    assert.equal(meta.response_length, tokens.length - start);
    assert.ok((meta.weight_versions as unknown[]).every((version) => version === '1' || version === null));
    assert.equal(logprobs.length, mask.length);
    for (const [i, logprob] of logprobs.entries()) {
      // SGLang's streams leave out what has no text.
      const isUnknown = (meta.metadata as { unknown_logprobs: number[] }).unknown_logprobs.includes(i);
      if (isUnknown) assert.deepEqual([logprob, mask[i], tokens[start + i]], [0, 1, endOfTurn]);
      else assert.ok(mask[i] === 1 ? logprob < 0 : logprob === 0, `${i}: ${logprob}`);
    }
    assert.equal(meta.response, decode(tokens.slice(start)));
  }
}

for (const kind of ['sglang', 'vllm'] as const) {
  test(`${kind}: histories of many turns that branch are continued from the ids that engines sampled`, async (t) => {
    const scene = await startChatScene(t, { kind });
    const random = seededRandom(7);
    const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
    for (let i = 0; i < often(4, 40); i++) {
      const session = await scene.begin();
      const histories: History[] = [];
      for (let turn = 0; turn < 8; turn++) {
        const from = random() < 0.7 ? (histories.at(-1) ?? START) : pick([START, ...histories]);
        const role = from === START || random() < 0.7 ? 'user' : 'tool';
        const more = { stream: random() < 0.5, max_tokens: 1 + Math.floor(random() * 40), temperature: 1 };
        histories.push(await next(scene, session, from, role, pick(said), more));
      }
      await checkSamples(scene, session, histories);
      const { records, metadata } = await scene.record(session);
      assert.equal(records.length, 8);
      assert.deepEqual(metadata.accumulated_token_ids, histories.at(-1)!.ids);
      assert.ok(metadata.tree.turns.every(({ drift }) => drift === null));
      for (const [n, { request, response, status_code: status }] of records.entries()) {
        assert.equal(status, 200);
        assert.deepEqual(request.messages, histories[n]!.messages.slice(0, -1));
        assert.equal(response.choices[0]!.message.content, histories[n]!.messages.at(-1)!.content);
      }
    }
  });
}

test('several choices are branches; a client that spells an answer otherwise still goes on behind it', async (t) => {
  const scene = await startChatScene(t);
  const session = await scene.begin();
  const messages = [{ role: 'user', content: 'a' }];
  const { text } = await scene.post(`/sessions/${session}/v1/chat/completions`, { messages, n: 3, max_tokens: 8 });
  await untilIdle(scene.router);
  const { choices } = JSON.parse(text) as { choices: { message: ChatMessage }[] };
  const sampled = [...scene.log];
  assert.equal(sampled.length, 3);
  for (const { message } of choices) {
    const { content, role } = message;
    const respelled = { role, content: [{ type: 'text', text: content }] as never, refusal: null };
    await scene.say(session, [...messages, respelled, { role: 'user', content: 'b' }], { max_tokens: 3 });
    const { inputIds } = scene.log.at(-1)!;
    const before = sampled.find(({ inputIds: asked, outputIds }) => {
      const known = [...asked, ...outputIds];
      return String(inputIds.slice(0, known.length)) === String(known);
    });
    assert.ok(before, 'its prompt begins with one of the choices');
  }
  const turns = (await scene.record(session)).metadata.tree.turns;
  assert.equal(turns.length, 6);
  assert.equal((await samplesOf(scene, session)).length, 3);
});

/** Leaves out what was answered before the last question. */
const FORGETFUL =
  "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if loop.last or m.role == 'user' %}{{ m.content }}{% endif %}" +
  "{{ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

test('a template that rewrites history is followed: it is said where, and what was sampled before is a sample of its own', async (t) => {
  const scene = await startChatScene(t, { template: FORGETFUL, sim: { meanOutputTokens: 0 } });
  const session = await scene.begin();
  const question = [{ role: 'user', content: 'a' }];
  const answer = await scene.say(session, question, { max_tokens: 9 });
  const first = scene.log.at(-1)!;
  await scene.say(session, [...question, answer, { role: 'user', content: 'b' }], { max_tokens: 9 });
  const second = scene.log.at(-1)!;
  const start = '<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n';
  const asked = encode(`${start}<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n`);
  assert.deepEqual(second.inputIds, asked);
  const { turns } = (await scene.record(session)).metadata.tree;
  const drift = { kind: 'template', at: encode(start).length };
  assert.deepEqual(
    turns.map((turn) => turn.drift),
    [null, drift],
  );
  const samples = await samplesOf(scene, session);
  assert.deepEqual(
    samples.map(({ tokens }) => tokens),
    [first, second].map(({ inputIds, outputIds }) => [...inputIds, ...outputIds]),
  );
});

test('an answer that got lost is asked for again: a branch, and the session goes on', async (t) => {
  const scene = await startChatScene(t);
  const session = await scene.begin();
  const first = await next(scene, session, START, 'user', 'a', {});
  const lost = await next(scene, session, START, 'user', 'a', {});
  const second = await next(scene, session, first, 'user', 'b', {});
  await checkSamples(scene, session, [first, lost, second]);
  const versions = (await samplesOf(scene, session)).map(({ meta }) => meta.weight_versions);
  assert.deepEqual(versions, [['1'], ['1', '1']], 'one for each turn');
});

for (const kind of ['sglang', 'vllm'] as const) {
  test(`${kind}: a call that is repeated with its id gets its answer again, and no engine hears of it`, async (t) => {
    const scene = await startChatScene(t, { kind });
    const session = await scene.begin();
    const path = `/sessions/${session}/v1/chat/completions`;
    const body = { model: 'sim', messages: [{ role: 'user', content: 'a' }], max_tokens: 9 };
    for (const [more, name] of [
      [{}, 'idempotency-key'],
      [{ stream: true, logprobs: true }, 'x-request-id'],
    ] as const) {
      const id = { [name]: `call-${name}` };
      const first = await scene.post(path, { ...body, ...more }, id);
      const { length } = scene.log;
      const again = await scene.post(path, { ...body, ...more }, id);
      assert.deepEqual(again, first);
      assert.equal(scene.log.length, length);
      // Another question under the same name is another call.
      await scene.post(path, { ...body, ...more, top_k: 5 }, id);
      assert.equal(scene.log.length, length + 1);
    }
    await untilIdle(scene.router);
    assert.equal((await scene.record(session)).records.length, 4);
  });
}

test('an id of --request-id-headers may be that of a session: it names no call', async (t) => {
  const scene = await startChatScene(t, { router: { requestIdHeaders: ['x-session-id', 'x-trace-id'] } });
  const path = `/sessions/${await scene.begin()}/v1/chat/completions`;
  const body = { messages: [{ role: 'user', content: 'a' }], max_tokens: 9 };
  const asked = async (headers: Record<string, string>): Promise<number> => {
    const { length } = scene.log;
    for (let i = 0; i < 2; i++) assert.equal((await scene.post(path, body, headers)).status, 200);
    return scene.log.length - length;
  };
  assert.equal(await asked({ 'x-session-id': 'rollout-1' }), 2);
  assert.equal(await asked({ 'x-trace-id': 'trace-1' }), 2);
  assert.equal(await asked({ 'x-session-id': 'rollout-1', 'x-request-id': 'call-1' }), 1);
  assert.equal(await asked({ 'x-request-id': 'call-2' }), 1);
  assert.equal(await asked({ 'x-session-id': 'rollout-1', 'idempotency-key': 'call-3' }), 1);
});

test('a call that is repeated while the first one is in flight gets 409', async (t) => {
  const scene = await startChatScene(t, { sim: { timeScale: 1, meanOutputTokens: 0 } });
  const session = await scene.begin();
  const path = `${scene.router.url}/sessions/${session}/v1/chat/completions`;
  const body = JSON.stringify({ messages: [{ role: 'user', content: 'a' }], stream: true, max_tokens: 2_000 });
  const stop = new AbortController();
  const headers = { 'idempotency-key': 'k' };
  const first = await fetch(path, { method: 'POST', body, headers, signal: stop.signal });
  await first.body!.getReader().read();
  const second = await fetch(path, { method: 'POST', body, headers });
  assert.equal(second.status, 409);
  assert.match(await second.text(), /still in flight/);
  stop.abort();
  await untilIdle(scene.router);
});

test('calls with one name that come at once: an engine is asked once', async (t) => {
  const scene = await startChatScene(t);
  const session = await scene.begin();
  const path = `/sessions/${session}/v1/chat/completions`;
  const body = { messages: [{ role: 'user', content: 'a' }] };
  const id = { 'idempotency-key': 'k' };
  const answers = await Promise.all(Array.from({ length: 5 }, () => scene.post(path, body, id)));
  assert.equal(scene.log.length, 1);
  const texts = answers.filter(({ status }) => status !== 409).map(({ text }) => text);
  assert.deepEqual(
    texts,
    Array.from(texts, () => texts[0]),
    'who comes late gets the answer on record',
  );
  assert.ok(texts.length > 0);
});

test('a call that ended while it waited for its turn is no call under way', async (t) => {
  const router = { maxConcurrentRequests: 1, queueSize: 5 };
  const scene = await startChatScene(t, { sim: { timeScale: 1, meanOutputTokens: 0 }, router });
  const session = await scene.begin();
  const path = `${scene.router.url}/sessions/${session}/v1/chat/completions`;
  const ask = (body: object, headers: Record<string, string> = {}, signal: AbortSignal | null = null) =>
    fetch(path, { method: 'POST', body: JSON.stringify(body), headers, signal });
  const messages = [{ role: 'user', content: 'a' }];
  const stopLong = new AbortController();
  const long = await ask({ messages, stream: true, max_tokens: 2_000 }, {}, stopLong.signal);
  const id = { 'idempotency-key': 'k' };
  const stop = new AbortController();
  const left = ask({ messages, max_tokens: 1 }, id, stop.signal).catch(() => null);
  await until(
    'it waits',
    async () => (await metric(scene.router, 'turnout_requests_queued_total{reason="concurrency"}')) === 1,
  );
  assert.equal((await ask({ messages, max_tokens: 1 }, id)).status, 409, 'while it waits it is under way');
  stop.abort();
  await left;
  await until('it has gone', () => scene.router.pipeline.inFlight.size === 1);
  stopLong.abort();
  await long.text().catch(() => '');
  const again = await ask({ messages, max_tokens: 1 }, id);
  assert.equal(again.status, 200, await again.text());
});

for (const kind of ['sglang', 'vllm'] as const) {
  test(`${kind}: of an answer that broke off, as its client left or its engine died, the tokens that came are on record`, async (t) => {
    const scene = await startChatScene(t, { kind, count: 2, sim: { timeScale: 1, meanOutputTokens: 0 } });
    const session = await scene.begin();
    const path = `${scene.router.url}/sessions/${session}/v1/chat/completions`;
    const messages = [{ role: 'user', content: 'a' }];
    const body = JSON.stringify({ model: 'sim', messages, stream: true, max_tokens: 5_000, temperature: 1 });
    /** Reads until there is some text, then has the answer break off. @returns the text that came */
    const broken = async (end: () => Promise<void>, signal?: AbortSignal): Promise<string> => {
      const headers = { 'idempotency-key': 'k' };
      const reader = (await fetch(path, { method: 'POST', body, headers, signal: signal ?? null })).body!.getReader();
      let text = '';
      const read = async (): Promise<void> => {
        const { value, done } = await reader.read();
        if (done) throw new Error('it ended');
        text += Buffer.from(value).toString();
      };
      while (contentOf(text).length < 20) await read();
      await end();
      await assert.rejects(async () => {
        for (;;) await read();
      });
      await untilIdle(scene.router);
      return contentOf(text);
    };
    const contentOf = (text: string): string =>
      [...text.matchAll(/"content":("(?:[^"\\]|\\.)*")/g)].map(([, json]) => JSON.parse(json!) as string).join('');

    const stop = new AbortController();
    const left = await broken(async () => stop.abort(), stop.signal);
    const died = await broken(async () => {
      const busy = scene.router.fleet.workers.find(({ slot }) => scene.router.fleet.inFlight[slot]! > 0);
      await scene.engines.find(({ url }) => url === busy!.url)!.kill();
    });
    const [first, second] = await samplesOf(scene, session);
    const asked = behind(START, 'user', 'a');
    for (const [sample, content] of [
      [first!, left],
      [second!, died],
    ] as const) {
      assert.equal(sample.meta.status, 'aborted');
      assert.deepEqual(sample.tokens.slice(0, asked.length), asked);
      const sampled = sample.tokens.slice(asked.length);
      assert.ok(decode(sampled, false).startsWith(content));
      assert.deepEqual([sample.mask, sample.logprobs.length], [sampled.map(() => 1), sampled.length]);
      assert.ok(sample.logprobs.every((logprob) => logprob < 0));
      const log = scene.log.find(({ outputIds }) => String(outputIds.slice(0, sampled.length)) === String(sampled));
      assert.ok(log, 'it is what an engine sampled');
    }
    const { records, metadata } = await scene.record(session);
    assert.deepEqual(
      records.map(({ response }) => response.choices[0]!.finish_reason),
      ['abort', 'abort'],
    );
    assert.ok(records[0]!.response.choices[0]!.message.content!.startsWith(left));
    assert.deepEqual(metadata.accumulated_token_ids, second!.tokens);

    // Asked for again, by the same name too, it is a branch; and what came can be gone on with.
    const third = await next(scene, session, START, 'user', 'a', { max_tokens: 5 });
    const message = records[1]!.response.choices[0]!.message;
    const torn = { messages: [...messages, message], ids: second!.tokens, mask: [], isContinued: false };
    await next(scene, session, torn, 'user', 'b', { max_tokens: 5, stream: true });
    await next(scene, session, third, 'user', 'b', { max_tokens: 5 });
    assert.equal((await samplesOf(scene, session)).length, 3);
  });
}

test('a session goes on at an engine of the other kind when its own is gone', async (t) => {
  const log: FinishedRecord[] = [];
  const engines = [
    ...(await startEngines(t, 1, log, { kind: 'sglang' })),
    ...(await startEngines(t, 1, log, { kind: 'vllm' })),
  ];
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const router = await startTestRouter(t, {
    workerUrls: engines.map(({ url }) => url),
    tokenizerPath,
    plugin: ['chat-sessions'],
    policy: 'round_robin',
    disableHealthCheck: false,
    pluginTimeoutMs: 60_000,
  });
  await until('the router knows its engines', () => router.fleet.workers.every(({ models }) => models !== null));
  const scene = sceneOf(router, engines, log);
  const session = await scene.begin();
  const histories: History[] = [];
  for (let turn = 0; turn < 4; turn++) {
    histories.push(await next(scene, session, histories.at(-1) ?? START, 'user', said[turn]!, { stream: turn > 1 }));
  }
  await engines[0]!.close();
  // Every second one is for the engine that is gone, and is tried at the other one.
  for (let turn = 0; turn < 4; turn++) {
    histories.push(await next(scene, session, histories.at(-1)!, 'user', said[turn]!, { stream: turn > 1 }));
  }
  await checkSamples(scene, session, histories);
});

test('an aborted generation is on record, and goes on', async (t) => {
  const scene = await startChatScene(t, { sim: { timeScale: 1, meanOutputTokens: 0 } });
  const session = await scene.begin();
  const messages = [{ role: 'user', content: 'a' }];
  const path = `${scene.router.url}/sessions/${session}/v1/chat/completions`;
  const body = JSON.stringify({ messages, stream: true, max_tokens: 2_000, rid: 'me' });
  const response = await fetch(path, { method: 'POST', body });
  await fetch(`${scene.engines[0]!.url}/abort_request`, { method: 'POST', body: '{"rid":"me"}' });
  const text = await response.text();
  assert.match(text, /"finish_reason":"abort"/);
  await untilIdle(scene.router);
  const { inputIds, outputIds } = scene.log.at(-1)!;
  const first: History = {
    messages: [...messages, messageOf(text)],
    ids: [...inputIds, ...outputIds],
    mask: [...inputIds.map(() => 0), ...outputIds.map(() => 1)],
    isContinued: false,
  };
  const second = await next(scene, session, first, 'user', 'b', { max_tokens: 5 });
  await checkSamples(scene, session, [first, second]);
});

async function startKeeping(
  t: TestContext,
  dataDir: string,
  tokenizerPath: string,
  kind: 'sglang' | 'vllm' = 'sglang',
) {
  const log: FinishedRecord[] = [];
  const engines = await startEngines(t, 1, log, { kind });
  const plugin = ['chat-sessions'];
  const workerUrls = engines.map(({ url }) => url);
  const router = await startTestRouter(t, {
    workerUrls,
    tokenizerPath,
    dataDir,
    plugin,
    disableHealthCheck: false,
    pluginTimeoutMs: 60_000,
  });
  await until('the router knows its engine', () => router.fleet.workers.every(({ models }) => models !== null));
  return sceneOf(router, engines, log);
}

test('sessions survive a restart of the router', async (t) => {
  const dataDir = temporaryFolder(t);
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const before = await startKeeping(t, dataDir, tokenizerPath);
  const session = await before.begin();
  const empty = await before.begin();
  const first = await next(before, session, START, 'user', 'a 漢', { stream: true, max_tokens: 9 });
  const second = await next(before, session, first, 'tool', '{"b": "é"}', { max_tokens: 9 });
  const branch = await next(before, session, first, 'user', 'c', { max_tokens: 9 });
  const record = await before.record(session);
  await before.router.close();

  const after = await startKeeping(t, dataDir, tokenizerPath);
  assert.deepEqual(await after.record(session), record);
  assert.deepEqual((await after.record(empty)).records, [], 'a session that nobody used yet is known too');
  const third = await next(after, session, second, 'user', 'd', { max_tokens: 9 });
  const other = await next(after, session, branch, 'user', 'e', { stream: true });
  await checkSamples(after, session, [first, second, branch, third, other]);
});

test('a session that became too old for the store begins anew, with its whole history', async (t) => {
  const scene = await startChatScene(t, { router: { storeMaxAgeSecs: 4 } });
  const session = await scene.begin();
  const first = await next(scene, session, START, 'user', 'a', { max_tokens: 9 });
  await until('it is gone', async () => (await scene.record(session)).records.length === 0);
  const messages = [...first.messages, { role: 'user', content: 'b' }];
  let samples: Sample[] = [];
  await until('the new turn is read before it is too old, too', async () => {
    await scene.say(session, messages, { max_tokens: 9 });
    samples = await samplesOf(scene, session);
    return samples.length > 0;
  });
  const { inputIds, outputIds } = scene.log.at(-1)!;
  const [sample, ...others] = samples;
  assert.equal(others.length, 0);
  assert.deepEqual([...sample!.tokens], [...inputIds, ...outputIds]);
});

test('a session that the memory has no room for begins anew, also when a request of it is under way then', async (t) => {
  const router = { storeMemoryBytes: 65_536 };
  const scene = await startChatScene(t, { count: 2, sim: { timeScale: 1, meanOutputTokens: 0 }, router });
  const path = (session: string): string => `${scene.router.url}/sessions/${session}/v1/chat/completions`;
  const [session, busy, other] = [await scene.begin(), await scene.begin(), await scene.begin()];
  const first = await next(scene, session, START, 'user', 'a', { max_tokens: 2 });
  const begun = await next(scene, busy, START, 'user', 'a', { max_tokens: 2 });
  const stop = new AbortController();
  const long = await fetch(path(busy), {
    method: 'POST',
    body: JSON.stringify({
      messages: [...begun.messages, { role: 'user', content: 'b' }],
      stream: true,
      max_tokens: 9_000,
    }),
    signal: stop.signal,
  });
  const counted = async (of: string): Promise<number> => {
    const answer = await fetch(`${scene.router.url}/trajectories/${of}`);
    await answer.text();
    return answer.status;
  };
  const question = [{ role: 'user', content: 'word '.repeat(1_000) }];
  await until('they are gone', async () => {
    await scene.post(path(other).slice(scene.router.url.length), { messages: question, max_tokens: 1 });
    return (await counted(session)) === 404 && (await counted(busy)) === 404;
  });
  stop.abort();
  await long.text().catch(() => '');
  await untilIdle(scene.router);
  for (const [name, { messages }] of [
    [session, first],
    [busy, begun],
  ] as const) {
    await scene.say(name, [...messages, { role: 'user', content: 'c' }], { max_tokens: 2 });
    const { inputIds, outputIds } = scene.log.at(-1)!;
    const answer = await fetch(`${scene.router.url}/trajectories?format=jsonl&session=${name}`);
    const lines = (await answer.text()).trim().split('\n');
    assert.equal(lines.length, 1);
    const { tokens, turns } = JSON.parse(lines[0]!) as { tokens: number[]; turns: { drift: unknown }[] };
    assert.deepEqual(tokens, [...inputIds, ...outputIds]);
    assert.deepEqual(
      turns.map(({ drift }) => drift),
      [{ kind: 'lost', at: 0 }],
    );
  }
  const lost = 'turnout_trajectory_evicted_live_sessions_total';
  await until('they are counted', async () => (await metric(scene.router, lost)) >= 2);
});

for (const kind of ['sglang', 'vllm'] as const) {
  test(`${kind}: a call that is repeated after a restart of the router gets the answer on record`, async (t) => {
    const dataDir = temporaryFolder(t);
    const tokenizerPath = temporaryFolder(t);
    writeTokenizer(tokenizerPath);
    const before = await startKeeping(t, dataDir, tokenizerPath, kind);
    const path = `/sessions/${await before.begin()}/v1/chat/completions`;
    const calls = [{}, { stream: true }, { logprobs: true, n: 2 }].map((more, i) => {
      const body = { model: 'sim', messages: [{ role: 'user', content: 'lost' }], max_tokens: 9, ...more };
      return [path, body, { 'idempotency-key': `call ${i}` }] as const;
    });
    const answers: object[] = [];
    for (const call of calls) answers.push(await before.post(...call));
    await untilIdle(before.router);
    await before.router.close();

    const after = await startKeeping(t, dataDir, tokenizerPath, kind);
    for (const [i, call] of calls.entries()) assert.deepEqual(await after.post(...call), answers[i]);
    assert.equal(after.log.length, 0, 'no engine gets it');
    const [again, body, id] = calls[0]!;
    await after.post(again, { ...body, top_k: 5 }, id);
    assert.equal(after.log.length, 1, 'another question under the same name is another call');
  });
}

test('a turn has the group that its client names, also if no policy reads it', async (t) => {
  const scene = await startChatScene(t);
  const session = await scene.begin();
  const body = { messages: [{ role: 'user', content: 'a' }], max_tokens: 9 };
  const path = `/sessions/${session}/v1/chat/completions`;
  assert.equal((await scene.post(path, body, { 'x-turnout-group': 'g' })).status, 200);
  await untilIdle(scene.router);
  const response = await fetch(`${scene.router.url}/trajectories?group=g`);
  const { trajectories } = (await response.json()) as { trajectories: { session: string }[] };
  assert.deepEqual(
    trajectories.map((each) => each.session),
    [session],
  );
});

test('--capture-chat: plain chats that carry a session key are sessions', async (t) => {
  const scene = await startChatScene(t, { router: { plugin: [], captureChat: true } });
  const say = async (messages: readonly ChatMessage[], headers: Record<string, string>): Promise<ChatMessage> => {
    const { status, text } = await scene.post('/v1/chat/completions', { messages, max_tokens: 9 }, headers);
    assert.equal(status, 200, text);
    await untilIdle(scene.router);
    return (JSON.parse(text) as { choices: { message: ChatMessage }[] }).choices[0]!.message;
  };
  const key = { 'x-session-id': 'mine' };
  const messages = [{ role: 'user', content: 'a' }];
  const answer = await say(messages, key);
  const { inputIds, outputIds } = scene.log.at(-1)!;
  const known: History = {
    messages: [...messages, answer],
    ids: [...inputIds, ...outputIds],
    mask: [],
    isContinued: false,
  };
  await say([...known.messages, { role: 'user', content: 'b' }], key);
  assert.deepEqual(scene.log.at(-1)!.inputIds, [...known.ids, ...behind(known, 'user', 'b')]);
  assert.equal((await scene.record('mine')).records.length, 2);
  await say(messages, {});
  assert.equal((await scene.record('mine')).records.length, 2, 'one without a key is nobody’s');
  await fetch(`${scene.router.url}/sessions/mine`, { method: 'DELETE' });
  assert.equal((await fetch(`${scene.router.url}/sessions/mine`)).status, 404);
  await say(messages, key);
  assert.equal((await scene.record('mine')).records.length, 1, 'a key that is used again begins anew');
  await say(messages, { 'x-session-id': 'run/1 a' });
  assert.equal((await scene.record('run%2F1%20a')).records.length, 1, 'a key may have slashes');
  assert.equal((await samplesOf(scene, 'run%2F1%20a')).length, 1);
});

test('the end of a session takes its turns with it', async (t) => {
  const scene = await startChatScene(t);
  const session = await scene.begin();
  await next(scene, session, START, 'user', 'a', {});
  const end = () => fetch(`${scene.router.url}/sessions/${session}`, { method: 'DELETE' });
  assert.equal((await end()).status, 204);
  assert.equal((await fetch(`${scene.router.url}/sessions/${session}`)).status, 404);
  assert.equal((await scene.post(`/sessions/${session}/v1/chat/completions`, { messages: [] })).status, 404);
  assert.equal((await fetch(`${scene.router.url}/trajectories/${session}`)).status, 404);
});

test('any other path of a session goes where it would go without', async (t) => {
  const scene = await startChatScene(t);
  const session = await scene.begin();
  const { status, text } = await scene.post(`/sessions/${session}/v1/completions?x=1`, { prompt: 'a', max_tokens: 2 });
  assert.equal(status, 200, text);
  assert.deepEqual(scene.log.at(-1)!.inputIds, encode('a'));
  const unknown = await scene.post('/sessions/nobody/v1/completions', { prompt: 'a', max_tokens: 2 });
  assert.equal(unknown.status, 200, 'whoever began it');
  const health = await fetch(`${scene.router.url}/sessions/${session}/health`);
  assert.equal(health.status, 200);
});

test('what else was captured under its key is no call of a chat, and the record can be read', async (t) => {
  const plugin = ['chat-sessions', 'radix-tree:{"completions":true}'];
  const scene = await startChatScene(t, { router: { plugin, captureBodies: true } });
  const session = await scene.begin();
  await next(scene, session, START, 'user', 'a', {});
  for (const [path, body] of [
    ['/generate', { text: 'a', sampling_params: { max_new_tokens: 2 } }],
    ['/v1/completions', { prompt: 'b', max_tokens: 2 }],
  ] as const) {
    const { status, text } = await scene.post(`/sessions/${session}${path}`, body);
    assert.equal(status, 200, text);
  }
  await until('all turns are kept', async () => {
    const { turns } = (await (await fetch(`${scene.router.url}/trajectories/${session}`)).json()) as { turns: number };
    return turns === 3;
  });
  const { records } = await scene.record(session);
  assert.equal(records.length, 1);
});

test('each client has its own sessions, whatever their names', async (t) => {
  const scene = await startChatScene(t, { router: { apiKey: ['a', 'b'], adminApiKey: ['boss'] } });
  const as = async (key: string, method: string, path: string, body?: object) => {
    const headers = { authorization: `Bearer ${key}` };
    const init = { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) };
    const response = await fetch(scene.router.url + path, init);
    return { status: response.status, text: await response.text() };
  };
  assert.equal((await as('nobody', 'POST', '/sessions')).status, 401);
  const { session_id: session } = JSON.parse((await as('a', 'POST', '/sessions')).text) as { session_id: string };
  const chat = `/sessions/${session}/v1/chat/completions`;
  const messages = [{ role: 'user', content: 'secret' }];
  assert.equal((await as('a', 'POST', chat, { messages })).status, 200);
  assert.equal((await as('nobody', 'POST', chat, { messages })).status, 401);
  await untilIdle(scene.router);
  const recordsOf = async (key: string): Promise<number> => {
    const { text } = await as(key, 'GET', `/sessions/${session}`);
    return (JSON.parse(text) as { records: unknown[] }).records.length;
  };
  assert.deepEqual([await recordsOf('a'), await recordsOf('b')], [1, 0]);
  await as('b', 'DELETE', `/sessions/${session}`);
  assert.equal(await recordsOf('a'), 1);
  // What steers takes the key for that, in a session too.
  assert.equal((await as('a', 'POST', `/sessions/${session}/pause_generation`, {})).status, 403);
});

test('an admin deletes the session of the client that the query names, not its own of that name', async (t) => {
  const scene = await startChatScene(t, { router: { apiKey: ['a'], adminApiKey: ['boss'], captureChat: true } });
  const as = (key: string, method: string, path: string, body: object | null = null) =>
    fetch(scene.router.url + path, {
      method,
      headers: { authorization: `Bearer ${key}`, 'x-session-id': 'mine' },
      body: body && JSON.stringify(body),
    });
  for (const key of ['a', 'boss']) {
    const { status } = await as(key, 'POST', '/v1/chat/completions', { messages: [{ role: 'user', content: 'a' }] });
    assert.equal(status, 200);
  }
  await untilIdle(scene.router);
  const listed = (await (await as('boss', 'GET', '/trajectories')).json()) as { trajectories: { tenant: string }[] };
  const tenant = listed.trajectories.map((each) => each.tenant).find((each) => each !== '');
  assert.equal((await as('boss', 'DELETE', `/sessions/mine?tenant=${tenant}`)).status, 204);
  assert.equal((await as('a', 'GET', '/sessions/mine')).status, 404);
  const { records } = (await (await as('boss', 'GET', '/sessions/mine')).json()) as { records: unknown[] };
  assert.equal(records.length, 1);
});

test('streams of several choices: sessions are read and exported with all requests, and continue', async (t) => {
  const scene = await startChatScene(t, {
    kind: 'vllm',
    sim: { timeScale: 1 },
    router: { dataDir: temporaryFolder(t) },
  });
  // In which order the choices end is chance.
  const chat = async (): Promise<void> => {
    const session = await scene.begin();
    const messages: ChatMessage[] = [{ role: 'user', content: 'Ten what is of the weather. '.repeat(30) }];
    for (let turn = 0; turn < 2; turn++) {
      const body = { model: 'sim', messages, stream: true, n: 3, temperature: 1 };
      const { status, text } = await scene.post(`/sessions/${session}/v1/chat/completions`, body);
      assert.equal(status, 200, text);
      type Choice = { readonly index: number; readonly delta?: { readonly content?: string } };
      const choices = eventsOf(text).flatMap((event) => event.choices as Choice[]);
      const content = choices.map(({ index, delta }) => (index === 0 ? (delta?.content ?? '') : '')).join('');
      messages.push({ role: 'assistant', content }, { role: 'user', content: `turn ${turn}` });
    }
    assert.equal((await scene.record(session)).metadata.tree.turns.length, 6);
  };
  await Promise.all(Array.from({ length: 4 }, chat));
  const lines = (await (await fetch(`${scene.router.url}/trajectories?format=jsonl`)).text()).trim().split('\n');
  const turns = lines.flatMap((line) => (JSON.parse(line) as { turns: Record<string, unknown>[] }).turns);
  assert.equal(new Set(turns.map(({ id }) => id)).size, 24);
  for (const { request, unreadable } of turns) assert.deepEqual([typeof request, unreadable], ['string', undefined]);
});
