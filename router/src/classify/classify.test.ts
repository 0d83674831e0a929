import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Exchange } from '../exchange.ts';
import type { ResultListener } from '../wire/result.ts';
import { RequestBody, RetryBudget } from '../wire/request-body.ts';
import { RequestHead } from '../wire/request-head.ts';
import type { Sink } from '../wire/sink.ts';
import { classify } from './classify.ts';

/** An exchange of this head; nothing here reaches its road or its sink. */
function exchangeOf(target: string, ...lines: string[]): Exchange {
  const text = `POST ${target} HTTP/1.1\r\nhost: h\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n`;
  const bytes = Buffer.from(text, 'latin1');
  const head = new RequestHead();
  assert.ok(head.read(bytes, 0, bytes.length) > 0);
  const x = new Exchange(
    {} as ResultListener<Exchange>,
    head,
    new RequestBody(new RetryBudget(0), () => {}),
    {} as Sink,
    0,
  );
  classify(x, []);
  return x;
}

test('the path decides the dialect, however it is spelled', () => {
  const dialects = {
    '/v1/chat/completions': 'openai',
    '/%76%31//chat/completions?x': 'openai',
    '/inference/v1/completions': 'openai',
    '/v1/messages': 'anthropic',
    '/v1/messages/count_tokens?beta=true': 'anthropic',
    '/v1/messages_of_mine': 'openai',
    '/generate': 'sglang',
    '/a/../generate?stream=1': 'sglang',
    '/classify': 'sglang',
    '/encode': 'sglang',
    '/generate_stream': 'plain',
    '/v1': 'plain',
    '/': 'plain',
  };
  for (const [target, dialect] of Object.entries(dialects)) assert.equal(exchangeOf(target).dialect, dialect, target);
});

test('the target keeps the spelling of the client', () => {
  const x = exchangeOf('/a//%62?q=%63');
  assert.equal(x.path, '/a/b');
  assert.equal(x.head.target, '/a//%62?q=%63');
});

test('an id of the client is kept', () => {
  const x = exchangeOf('/', 'X-Request-Id: trace_1:2');
  assert.equal(x.head.requestId, 'trace_1:2');
  assert.ok(!x.isRequestIdOurs);
  assert.equal(x.head.passedOn(), 'X-Request-Id: trace_1:2\r\n');
});

test('a request without id gets one, each its own', () => {
  const ids = Array.from({ length: 100 }, () => exchangeOf('/').head.requestId);
  assert.equal(new Set(ids).size, 100);
  for (const id of ids) assert.match(id, /^req-[\w-]+$/);
  assert.ok(exchangeOf('/').isRequestIdOurs);
});

test('an id that could do harm in logs is replaced, and not passed on', () => {
  for (const id of ['a b', 'a\tb', '\xe9', 'x'.repeat(257)]) {
    const x = exchangeOf('/', `x-request-id: ${id}`, 'x-a: 1');
    assert.match(x.head.requestId, /^req-/);
    assert.ok(x.isRequestIdOurs);
    assert.equal(x.head.passedOn(), 'x-a: 1\r\n');
  }
});

test('x-turnout-session-end takes what clients write for yes and no, and nothing else', () => {
  const lastTurnOf = (value: string) => {
    const x = exchangeOf('/', `x-turnout-session-end: ${value}`);
    return classify(x, [])?.status ?? x.isLastTurn;
  };
  for (const yes of ['1', 'true', 'True', 'YES']) assert.equal(lastTurnOf(yes), true, yes);
  for (const no of ['0', 'false', 'False', 'no']) assert.equal(lastTurnOf(no), false, no);
  for (const wrong of ['2', 'on', 'maybe', 'true false']) assert.equal(lastTurnOf(wrong), 400, wrong);
});
