import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Message, ToolCall } from '../read/message.ts';
import { ChatTemplate } from './chat-template.ts';

const NOTHING = { tools: null, more: new Map() };

const rendered = (template: string, message: Message): string =>
  new ChatTemplate(template, template, new Map()).render([message], NOTHING, true);

const called = (given: unknown): readonly ToolCall[] => [{ id: 'a', function: { name: 'f', arguments: given } }];

test('a template gets messages as engines pass them', () => {
  const names = "{{ messages[0].keys()|join(' ') }} {{ messages[0].content|tojson }}";
  const given = '{{ messages[0].tool_calls[0].function.arguments|tojson }}';
  const reasoning = '{{ messages[0].reasoning_content }}';
  const cases: readonly (readonly [template: string, message: Message, text: string])[] = [
    // What the SDKs of OpenAI send back of an answer.
    [names, { role: 'assistant', content: 'a', refusal: null, tool_calls: null, audio: null }, 'role content "a"'],
    [names, { role: 'assistant', content: 'a', tool_calls: [] }, 'role content "a"'],
    [names, { role: 'assistant', content: null, name: 'b' }, 'role content name ""'],
    [names, { role: 'user', content: [{ type: 'text', text: 'a' }] }, 'role content "a"'],
    [names, { role: 'assistant', tool_calls: called('{}') }, 'role tool_calls content ""'],
    [given, { role: 'assistant', tool_calls: called('{"2": 1.0, "1": null}') }, '{"2": 1.0, "1": null}'],
    [given, { role: 'assistant', tool_calls: called('') }, '{}'],
    [given, { role: 'assistant', tool_calls: called('no JSON') }, '"no JSON"'],
    [given, { role: 'assistant', tool_calls: called({ a: 'b' }) }, '{"a": "b"}'],
    [reasoning, { role: 'assistant', content: 'a', reasoning: 'r' }, 'r'],
    [reasoning, { role: 'assistant', content: 'a', reasoning_content: 'r' }, 'r'],
    [reasoning, { role: 'assistant', content: 'a', reasoning_content: 'r', reasoning: null }, 'r'],
    [reasoning, { role: 'assistant', content: 'a', reasoning_content: null, reasoning: 'r' }, 'r'],
  ];
  for (const [template, message, text] of cases)
    assert.equal(rendered(template, message), text, JSON.stringify(message));
});

test('without tools a template gets none, as from transformers', () => {
  const template = '{{ tools is none }} {{ tools is defined }} {{ documents is none }} {{ add_generation_prompt }}';
  assert.equal(rendered(template, { role: 'user', content: 'a' }), 'True True True True');
});

test('tools that a template refuses are given to it without their wrapper', () => {
  const template = "{{ tools[0].name if tools[0].name is defined else raise_exception('no name') }}";
  const tools = [new Map([['function', new Map([['name', 'f']])]])];
  const own = new ChatTemplate(template, template, new Map());
  assert.equal(own.render([{ role: 'user', content: 'a' }], { tools, more: new Map() }, true), 'f');
  const others = { tools: ['a'], more: new Map() };
  assert.throws(() => own.render([{ role: 'user', content: 'a' }], others, true), { message: 'no name' });
});
