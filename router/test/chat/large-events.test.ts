import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { endOfTurn } from '../../../simulator/src/tokens/tokenizer.ts';
import { FromCompletion } from '../../src/engines/dialects/chat-from-completion.ts';
import type { ChatRecord } from '../harness/chat-scene.ts';
import { STREAM_HEAD, startEngine } from '../harness/engine.ts';
import { chunk } from '../harness/message.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

const ids = [300, 301, endOfTurn];
const large = Array.from({ length: 60_000 }, (_, i) => i).join();

/** A session before an engine that a test writes itself. */
async function startSession(t: TestContext, engineKind: 'sglang' | 'vllm') {
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const engine = await startEngine(t);
  const plugin = [`chat-sessions:{"engine":"${engineKind}","verify":false}`];
  const router = await startTestRouter(t, { workerUrls: [engine.url], tokenizerPath, plugin, pluginTimeoutMs: 60_000 });
  const begun = await fetch(`${router.url}/sessions`, { method: 'POST' });
  const { session_id: session } = (await begun.json()) as { session_id: string };
  const ask = async (messages: readonly object[]) => {
    const body = JSON.stringify({ messages, stream: true, max_tokens: 9 });
    const response = fetch(`${router.url}/sessions/${session}/v1/chat/completions`, { method: 'POST', body });
    const asked = await engine.next();
    const sent = JSON.parse((await asked.payload()).toString()) as { input_ids?: number[]; prompt?: number[] };
    return { asked, prompt: sent.input_ids ?? sent.prompt!, response };
  };
  const record = async (): Promise<ChatRecord> =>
    (await fetch(`${router.url}/sessions/${session}`)).json() as Promise<ChatRecord>;
  return { router, engine, ask, record };
}

const question = [{ role: 'user', content: 'a' }];
const streamOf = (events: readonly string[]): string => `${STREAM_HEAD}${events.map(chunk).join('')}0\r\n\r\n`;
const done = 'data: [DONE]\n\n';

test("SGLang: a large event keeps its place and all that is the client's, and the next request goes on from it", async (t) => {
  const { ask, router } = await startSession(t, 'sglang');
  const { asked, prompt, response } = await ask(question);
  const head = '"id":"x","created":1,"model":"m"';
  const delta = (content: string, more: string, end: string): string =>
    `data: {${head},"choices":[{"index":0,"delta":{"content":"${content}"},"logprobs":null,"finish_reason":${end}}]${more}}\n\n`;
  const of = (extension: string): string[] => [
    delta('b', `,"more":[${large},18446744073709551615]`, 'null'),
    delta('c', '', '"stop"'),
    `data: {${head},"choices":[],"sglext":{"hidden":[${large}]${extension}}}\n\n`,
    done,
  ];
  asked.connection.write(streamOf(of(`,"output_ids":[[${ids.join(',')}]]`)));
  assert.ok((await (await response).text()) === of('').join(''));
  const next = await ask([...question, { role: 'assistant', content: 'bc' }, { role: 'user', content: 'd' }]);
  assert.deepEqual(next.prompt.slice(0, prompt.length + ids.length), [...prompt, ...ids]);
  next.asked.connection.write(streamOf([done]));
  await (await next.response).text();
  await untilIdle(router);
});

test('vLLM: each choice begins once, before or behind a large event', async (t) => {
  const { ask, record, router } = await startSession(t, 'vllm');
  const { asked, prompt, response } = await ask(question);
  const choice = (index: number, text: string, token: number, end = 'null', more = ''): string =>
    `{"index":${index},"text":"${text}","logprobs":null,"finish_reason":${end},"token_ids":[${token}]${more}}`;
  const event = (choices: string, more = ''): string =>
    `data: {"id":"cmpl-x","object":"text_completion","created":1,"model":"m","choices":[${choices}]${more}}\n\n`;
  const events = [
    event(choice(0, 'b', ids[0]!)),
    event(`${choice(1, 'x', ids[0]!)},${choice(0, 'c', ids[1]!)}`, `,"more":[${large}]`),
    event(choice(1, 'y', ids[1]!, 'null', `,"more":[${large}]`)),
    event(choice(0, '', ids[2]!, '"stop"')),
    event(choice(1, '', ids[2]!, '"stop"')),
    done,
  ];
  asked.connection.write(streamOf(events));
  const got = await (await response).text();
  const onTheLoop = new FromCompletion({});
  const expected = events.map((each) => onTheLoop.event(Buffer.from(each)).toString()).join('');

  assert.ok(got === expected, got.slice(0, 300));
  assert.equal(got.split('"role":"assistant"').length, 3);
  await untilIdle(router);
  assert.deepEqual((await record()).metadata.accumulated_token_ids, [...prompt, ...ids]);
});

test('a client that leaves while its event is on the thread, and an engine that dies inside one: the session goes on', async (t) => {
  const { ask, router, engine } = await startSession(t, 'sglang');
  const event = `data: {"choices":[{"index":0,"delta":{"content":"b"}}],"more":[${large}]}\n\n`;
  const first = await ask(question);
  first.asked.connection.socket.end(STREAM_HEAD + chunk(event).slice(0, 100_000));
  await assert.rejects((await first.response).text());
  await untilIdle(router);
  const leaving = new AbortController();
  const { signal } = leaving;
  const body = JSON.stringify({ messages: question, stream: true });
  const url = `${router.url}/v1/chat/completions`;
  const left = fetch(url, { method: 'POST', body, signal, headers: { 'x-session-id': 's' } }).catch(() => null);
  const asked = await engine.next();
  asked.connection.write(STREAM_HEAD + chunk(event));
  leaving.abort();
  await left;
  await asked.connection.untilEnded();
  await untilIdle(router);
  const again = await ask(question);
  again.asked.connection.write(streamOf([event, done]));
  assert.ok((await (await again.response).text()) === event + done);
});
