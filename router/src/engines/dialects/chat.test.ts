import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readChatRequest } from '../../recorder/thread/chat/chat-request.ts';
import { withoutOurs } from './chat-copy.ts';
import { engineRequest, requestedFields } from './chat.ts';

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

test('what a client asks for with any truth value that engines take, it gets', () => {
  const answer = Buffer.from('{"choices":[{"logprobs":{"content":[]},"token_ids":[7],"prompt_token_ids":[1]}]}');
  const hidden = '{"choices":[{"logprobs":null,"token_ids":null}]}';
  const cases = [
    [true, answer.toString()],
    [1, answer.toString()],
    ['true', answer.toString()],
    [false, hidden],
    [0, hidden],
    ['false', hidden],
    [null, hidden],
  ] as const;
  for (const [value, expected] of cases) {
    const messages = [{ role: 'user', content: 'a' }];
    const body = JSON.stringify({ messages, stream: value, logprobs: value, return_token_ids: value });
    const request = readChatRequest(Buffer.from(body));
    assert.ok(typeof request === 'object');
    assert.equal(request.isStream, expected !== hidden, body);
    assert.equal(withoutOurs(answer, requestedFields(request)).bytes.toString(), expected, body);
  }
});
