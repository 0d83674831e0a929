import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { pino } from 'pino';
import type { RouterParts } from '../../src/router.ts';
import { writeTokenizer } from '../../../simulator/src/tokens/tokenizer-files.ts';
import { decode, encode, endOfTurn } from '../../../simulator/src/tokens/tokenizer.ts';
import { type ChatRecord, startChatScene } from '../harness/chat-scene.ts';
import { STREAM_HEAD, startEngine } from '../harness/engine.ts';
import { startTestRouter, untilIdle } from '../harness/router.ts';
import { until } from '../harness/within.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

/** What the model said: its own spelling, which no template would write. */
const SAMPLED = '<tool_call>\n{"name":  "f", "arguments": {"n": 12345678901234567890}}\n</tool_call>';
const ids = [...encode(SAMPLED), endOfTurn];
const call = { id: 'call_1', type: 'function', function: { name: 'f', arguments: '{"n": 12345678901234567890}' } };
const logprobs = ids.map((id, i) => [-(i + 1) / 8, id, null]);
const meta = {
  finish_reason: { type: 'stop', matched: endOfTurn },
  completion_tokens: ids.length,
  output_token_logprobs: logprobs,
};
const head = '"id":"x","created":1,"model":"m"';

const whole =
  `{${head},"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"","reasoning_content":null,` +
  `"tool_calls":[${JSON.stringify({ ...call, index: 0 })}]},"logprobs":{"content":[]},"finish_reason":"tool_calls","matched_stop":null,` +
  `"meta_info":${JSON.stringify(meta)}}],"big":12345678901234567890,"usage":null}`;

const choice = (delta: object, more = ''): string =>
  `data: {${head},"object":"chat.completion.chunk","choices":[{"index":0,"delta":${JSON.stringify(delta)},"logprobs":null${more}}]}\n\n`;
const { id, type, function: called } = call;
const streamed = [
  choice({ role: 'assistant', content: '' }),
  choice({ tool_calls: [{ index: 0, id, type, function: { name: called.name, arguments: '' } }] }),
  choice({ tool_calls: [{ index: 0, function: { arguments: '{"n": 123456' } }] }),
  choice({ tool_calls: [{ index: 0, function: { arguments: '78901234567890}' } }] }),
  choice({}, ',"finish_reason":"tool_calls"'),
];
const extension = `data: {${head},"choices":[],"sglext":{"output_ids":[[${ids.join(',')}]]}}\n\n`;

/** A session before an engine that a test writes itself. */
async function startSession(t: TestContext, parts: RouterParts = {}) {
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const engine = await startEngine(t);
  const plugin = ['chat-sessions:{"engine":"sglang","verify":false}'];
  const options = { workerUrls: [engine.url], tokenizerPath, plugin, pluginTimeoutMs: 60_000 };
  const router = await startTestRouter(t, options, parts);
  const begun = await fetch(`${router.url}/sessions`, { method: 'POST' });
  const { session_id: session } = (await begun.json()) as { session_id: string };
  const ask = async (messages: readonly object[], more: object = {}) => {
    const body = JSON.stringify({ messages, ...more });
    const response = fetch(`${router.url}/sessions/${session}/v1/chat/completions`, { method: 'POST', body });
    const asked = await engine.next();
    return { asked, sent: JSON.parse((await asked.payload()).toString()) as Record<string, unknown>, response };
  };
  const record = async (): Promise<ChatRecord> =>
    (await fetch(`${router.url}/sessions/${session}`)).json() as Promise<ChatRecord>;
  return { router, ask, record };
}

const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object' } } }];
const question = [{ role: 'user', content: 'a' }];
const result = { role: 'tool', tool_call_id: 'call_1', content: '1' };
/** As an agent's library gives it back. */
const replayed = {
  role: 'assistant',
  content: null,
  tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'f', arguments: '{"n": 12345678901234567890}' } }],
};

for (const isStream of [false, true]) {
  test(`tool calls that an engine parsed pass on, in ${isStream ? 'a stream' : 'a whole answer'}; what was sampled goes on as it was`, async (t) => {
    const { router, ask, record } = await startSession(t);
    const first = await ask(question, { tools, stream: isStream });
    assert.deepEqual(first.sent.tools, tools);
    const asked = first.sent.input_ids as number[];
    if (isStream) {
      const body = [...streamed, extension, 'data: [DONE]\n\n'].map(
        (event) => `${event.length.toString(16)}\r\n${event}\r\n`,
      );
      first.asked.connection.write(`${STREAM_HEAD}${body.join('')}0\r\n\r\n`);
    } else first.asked.answer(whole);
    const text = await (await first.response).text();
    if (isStream) assert.equal(text, `${streamed.join('')}data: [DONE]\n\n`);
    else {
      assert.equal(text, whole.replace(/,"meta_info":\{.*\}\}\]/, '}]').replace('{"content":[]}', 'null'));
      assert.ok(text.includes('"big":12345678901234567890'));
    }
    await untilIdle(router);

    const second = await ask([...question, replayed, result], { tools });
    const tail = encode('\n<|im_start|>tool\n1<|im_end|>\n<|im_start|>assistant\n');
    // Its arguments have more digits than JavaScript numbers: the engine renders what is new, and no id is made up.
    assert.equal(second.sent.input_ids, undefined);
    assert.equal(second.sent.return_prompt_token_ids, true);
    const prompt = [...asked, ...ids, ...tail];
    second.asked.answer(whole.replace('"logprobs":', `"prompt_token_ids":[${prompt.join(',')}],"logprobs":`));
    assert.ok(!(await (await second.response).text()).includes('prompt_token_ids'));
    await untilIdle(router);
    const { metadata } = await record();
    assert.deepEqual(metadata.accumulated_token_ids, [...prompt, ...ids]);
    assert.deepEqual(
      metadata.tree.turns.map(({ drift }) => drift),
      [null, null],
    );
  });
}

test('a tool call of small numbers is continued with ids, whatever its spelling', async (t) => {
  const { router, ask } = await startSession(t);
  const small = (text: string): string => text.replaceAll('12345678901234567890', '7');
  const first = await ask(question, { tools });
  first.asked.answer(small(whole));
  await (await first.response).text();
  await untilIdle(router);
  const replay = JSON.parse(small(JSON.stringify(replayed)).replace('{\\"n\\": 7}', '{\\"n\\":7}')) as object;
  const second = await ask([...question, replay, result], { tools });
  const tail = encode('\n<|im_start|>tool\n1<|im_end|>\n<|im_start|>assistant\n');
  assert.deepEqual(second.sent.input_ids, [...(first.sent.input_ids as number[]), ...ids, ...tail]);
  second.asked.answer(small(whole));
  await (await second.response).text();
});

test('an engine that tells no ids: its answer is refused, as what it says can not be on record', async (t) => {
  const lines: string[] = [];
  const log = pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) });
  const { router, ask, record } = await startSession(t, { log });
  const { asked, response } = await ask(question);
  asked.answer(whole.replace(/,"meta_info":\{.*\}\}\]/, '}]'));
  const answer = await response;
  assert.equal(answer.status, 502);
  assert.equal(answer.headers.get('x-turnout-error'), 'upstream_bad_answer');
  assert.match(await answer.text(), /has no token ids/);
  await untilIdle(router);
  assert.deepEqual((await record()).records, []);
  const stream = await ask(question, { stream: true });
  const event = 'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n';
  stream.asked.connection.write(`${STREAM_HEAD}${event.length.toString(16)}\r\n${event}\r\n0\r\n\r\n`);
  assert.equal(await (await stream.response).text(), event, 'of a stream it is known too late');
  await until('it is in the log, with the reason', () => lines.some((line) => line.includes('was not captured')));
  assert.match(lines.join(''), /"problem":"the ids of its tokens are not in it"/);
});

test('vLLM with tools renders itself: ids are those that it tells, and where they leave the record is said', async (t) => {
  const { say, begin, log, record } = await startChatScene(t, { kind: 'vllm', sim: { meanOutputTokens: 0 } });
  const session = await begin();
  const first = await say(session, [{ role: 'user', content: 'a' }], { tools, max_tokens: 600, seed: 1 });
  const { inputIds, outputIds } = log.at(-1)!;
  const known = [...inputIds, ...outputIds];
  await say(session, [{ role: 'user', content: 'a' }, first, { role: 'user', content: 'b' }], {
    tools,
    max_tokens: 5,
    stream: true,
  });
  const second = log.at(-1)!;
  const { metadata } = await record(session);
  assert.deepEqual(metadata.accumulated_token_ids, [...second.inputIds, ...second.outputIds]);
  const at = known.findIndex((one, i) => second.inputIds[i] !== one);
  assert.ok(at > 0, 'the engine reads its own answer as other ids');
  assert.deepEqual(
    metadata.tree.turns.map(({ drift }) => drift),
    [null, { kind: 'template', at }],
  );
});

test('tools that are others than before are in the prompt, after a restart too', async (t) => {
  const template =
    "{% if tools %}{% for tool in tools %}{{ 'Tool ' + tool.function.name + '\\n' }}{% endfor %}{% endif %}" +
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}" +
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
  const router = { dataDir: temporaryFolder(t) };
  const { say, begin, log, router: before, engines } = await startChatScene(t, { template, router });
  const session = await begin();
  const named = (name: string) => ({ tools: [{ type: 'function', function: { name, parameters: {} } }] });
  const history = [
    { role: 'user', content: 'a' },
    await say(session, [{ role: 'user', content: 'a' }], named('aa')),
    { role: 'user', content: 'b' },
  ];
  const textOf = ({ inputIds }: (typeof log)[number]): string => decode(inputIds);
  history.push(await say(session, history, named('bb')), { role: 'user', content: 'c' });
  const second = log.at(-1)!;
  assert.ok(textOf(second).startsWith('Tool bb\n<|im_start|>user\na'), textOf(second));
  await before.close();

  const workerUrls = engines.map(({ url }) => url);
  const after = await startChatScene(t, { template, router: { ...router, workerUrls } });
  await after.say(session, history, named('bb'));
  const third = log.at(-1)!;
  const known = [...second.inputIds, ...second.outputIds];
  assert.deepEqual(third.inputIds.slice(0, known.length), known, 'the same tools: the record goes on');
  await after.say(session, history, named('cc'));
  assert.ok(textOf(log.at(-1)!).startsWith('Tool cc\n'), textOf(log.at(-1)!));
  const turns = (await after.record(session)).metadata.tree.turns as unknown as { drift: { kind: string } | null }[];
  assert.deepEqual(
    turns.map(({ drift }) => drift?.kind ?? ''),
    ['', 'template', '', 'template'],
  );
});
