import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readChatRequest } from '../../recorder/thread/chat/chat-request.ts';
import { engineRequest } from './chat.ts';

const OPTIONS = { maxModelLen: 100, takesIds: true, hidesExperts: false, trimsStop: false };

test('who renders: vLLM where there are tools, whether it may call them or not; else the router', () => {
  const tools = [{ type: 'function', function: { name: 'f', parameters: {} } }];
  const cases = [
    ['vllm', {}, true],
    ['vllm', { tools: [] }, true],
    ['vllm', { tools }, false],
    ['vllm', { tools, tool_choice: 'none' }, false],
    ['sglang', { tools }, true],
    ['sglang', { tools, tool_choice: 'none' }, true],
  ] as const;
  for (const [kind, more, isExact] of cases) {
    const body = JSON.stringify({ messages: [{ role: 'user', content: 'a' }], ...more });
    const request = readChatRequest(Buffer.from(body));
    assert.ok(typeof request === 'object');
    const made = engineRequest(kind, request, Int32Array.of(1, 2), OPTIONS);
    assert.equal(made.isExact, isExact, `${kind} ${JSON.stringify(more)}`);
  }
});
