import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ChatTemplate } from './chat-template.ts';
import { type ChatRequest, readChatRequest } from './chat-request.ts';

const tool = (name: string) => ({ type: 'function', function: { name, parameters: {} } });

test('the prompt has the tools that its engine would put there', () => {
  const tools = [tool('find'), tool('read')];
  const named = (name: string) => ({ type: 'function', function: { name } });
  for (const [choice, names] of [
    [undefined, ['find', 'read']],
    [null, ['find', 'read']],
    ['auto', ['find', 'read']],
    ['required', ['find', 'read']],
    ['none', undefined],
    [named('read'), ['read']],
    [named('write'), undefined],
  ] as const) {
    const body = { messages: [{ role: 'user', content: 'x' }], tools, tool_choice: choice };
    const request = readChatRequest(Buffer.from(JSON.stringify(body))) as ChatRequest;
    const asked = request.tools as readonly Map<string, Map<string, string>>[] | null;
    assert.deepEqual(
      asked?.map((each) => each.get('function')!.get('name')),
      names,
      JSON.stringify(choice),
    );
  }
});

/** A body as a client writes it. */
const read = (body: string): ChatRequest => readChatRequest(Buffer.from(body)) as ChatRequest;

test('numbers and the order of members reach the chat template as they were sent', () => {
  const source =
    '{{ tools|tojson }} {{ level }} {{ order }}{% for m in messages %}{% for call in m.tool_calls %} {{ call.function.arguments|tojson }}{% endfor %}{% endfor %}';
  const template = new ChatTemplate(source, source, new Map());
  const parameters = '{"10": {"minimum": 1.0, "maximum": 12345678901234567}, "9": {"default": 1e-07}}';
  const given = '{"2": 1.0, "1": [2, 18446744073709551]}';
  const call = `{"id": "a", "type": "function", "function": {"name": "find", "arguments": ${JSON.stringify(given)}}}`;
  const tools = `[{"type": "function", "function": {"name": "find", "parameters": ${parameters}}}]`;
  const {
    messages,
    tools: asked,
    more,
    isForeign,
  } = read(
    `{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": null, "tool_calls": [${call}]}],
      "tools": ${tools}, "chat_template_kwargs": {"level": 2.0, "order": {"b": null, "1": true}}}`,
  );
  assert.equal(isForeign, false);
  assert.equal(template.render(messages, { tools: asked, more }, true), `${tools} 2.0 {'b': None, '1': True} ${given}`);
});

test('what engines read in different ways is rendered by them', () => {
  const called = (given: string): string =>
    `{"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ${given}}}]}]}`;
  for (const [body, isForeign] of [
    [called('"{\\"a\\": 9223372036854775808}"'), true],
    [called('"{\\"a\\": 922337203685477580}"'), false],
    [called('{"a": 1.0}'), true],
    [called('{"a": "b"}'), false],
    ['{"messages": [{"role": "user", "content": "9223372036854775808"}]}', false],
    ['{"messages": [{"role": "user"}], "tools": [{"default": 9223372036854775808}]}', true],
  ] as const) {
    assert.equal(read(body).isForeign, isForeign, body);
  }
});

test('templates get what a request says of reasoning by the names that they have for it', () => {
  const template = '{{ thinking }} {{ enable_thinking }} {{ reasoning_effort }}';
  for (const [members, text] of [
    ['', '  '],
    ['"reasoning_effort": "none",', 'False False none'],
    ['"reasoning_effort": "high",', 'True True high'],
    ['"reasoning": {"enabled": true},', 'True True '],
    ['"reasoning": {"effort": "none"},', 'False False none'],
    ['"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": true},', 'False True none'],
  ] as const) {
    const { messages, tools, more } = read(`{${members} "messages": [{"role": "user", "content": "q"}]}`);
    const own = new ChatTemplate(template, template, new Map());
    assert.equal(own.render(messages, { tools, more }, true), text, members);
  }
});

test('tool calls that are no objects are for the engine to refuse', () => {
  for (const calls of ['[null]', '[1]', '[{"function": null}]', '{}'])
    assert.equal(typeof read(`{"messages": [{"role": "assistant", "tool_calls": ${calls}}]}`), 'object', calls);
});
