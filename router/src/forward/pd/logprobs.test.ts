import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Exchange } from '../../exchange.ts';
import { startBodyThread } from '../body-calls.ts';
import { logprobsMerge, packedLists } from './logprobs.ts';

const x = {} as Exchange;

/** What becomes of a decode engine's answer after that of a prefill engine. */
function merged(prefill: string, decode: string, isStream = false): string {
  const plugin = logprobsMerge(packedLists(Buffer.from(prefill), isStream), startBodyThread());
  const out = isStream ? plugin.responseEvent(x, Buffer.from(decode)) : plugin.responseBody(x, Buffer.from(decode));
  return (out as Buffer).toString();
}

test('the lists of the prefill engine come before those of the decode engine, all other bytes stay', () => {
  const prefill =
    '{"meta_info":{"input_token_logprobs":[[null,1,null],[-0.10,2,null]],"input_top_logprobs":[null,[[1]]]}}';
  const decode =
    '{ "text":"a", "meta_info" : {"id":12345678901234567890, "input_token_logprobs": [[-1e-3,3,null]],"input_top_logprobs":[]}}';
  assert.equal(
    merged(prefill, decode),
    '{ "text":"a", "meta_info" : {"id":12345678901234567890, "input_token_logprobs": [[null,1,null],[-0.10,2,null],[-1e-3,3,null]],"input_top_logprobs":[null,[[1]]]}}',
  );
});

test('null becomes the list; what is not there is not put there', () => {
  const prefill = '{"meta_info":{"input_token_logprobs":[1],"input_top_logprobs":[2]}}';
  assert.equal(
    merged(prefill, '{"meta_info":{"input_token_logprobs":null}}'),
    '{"meta_info":{"input_token_logprobs":[1]}}',
  );
});

test('a batch: each to its own', () => {
  const one = (n: string) => `{"meta_info":{"input_token_logprobs":[${n}]}}`;
  assert.equal(merged(`[${one('1')}, ${one('2')}]`, `[${one('')},${one('9')} ]`), `[${one('1')},${one('2,9')} ]`);
});

test('streams: every event, by its index', () => {
  const event = (index: number, n: string) =>
    `data: {"index":${index},"meta_info":{"input_token_logprobs":[${n}]}}\n\n`;
  const prefill = `${event(1, '11')}${event(0, '10')}data: [DONE]\n\n`;
  assert.equal(merged(prefill, event(0, ''), true), event(0, '10'));
  assert.equal(merged(prefill, event(1, '5'), true), event(1, '11,5'));
  assert.equal(merged(prefill, event(2, '5'), true), event(2, '5'));
  assert.equal(merged(prefill, 'data: [DONE]\n\n', true), 'data: [DONE]\n\n');
  assert.equal(merged(prefill, ': ping\n\n', true), ': ping\n\n');
});

test('what is no JSON passes as it is', () => {
  assert.equal(merged('{"meta_info":{"input_token_logprobs":[1]}}', 'oh dear, no'), 'oh dear, no');
  assert.equal(
    merged('oh dear, no', '{"meta_info":{"input_token_logprobs":[1]}}'),
    '{"meta_info":{"input_token_logprobs":[1]}}',
  );
});
