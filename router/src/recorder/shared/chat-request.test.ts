import assert from 'node:assert/strict';
import { test } from 'node:test';
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
    const asked = request.tools as typeof tools | null;
    assert.deepEqual(
      asked?.map((each) => each.function.name),
      names,
      JSON.stringify(choice),
    );
  }
});
