import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Exchange } from '../../exchange.ts';
import { startBodyThread } from '../body-calls.ts';
import { packedPrompts, promptsMerge } from './sglang-answers.ts';

const x = {} as Exchange;

/** What becomes of a decode engine's answer after that of a prefill engine. */
function merged(prefill: string, decode: string, isStream = false, count = 1): string {
  const plugin = promptsMerge(packedPrompts(Buffer.from(prefill), isStream, count), startBodyThread());
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

const experts = (...numbers: number[]): string => Buffer.from(Int32Array.from(numbers).buffer).toString('base64');
const PREFILL = experts(1, 2, 3);
const DECODE = experts(0, 0, 0, 4, 5);
const MERGED = experts(1, 2, 3, 4, 5);

/** Where engines write them. */
const forms: Readonly<Record<string, (value: string, name?: string) => string>> = {
  '/generate': (value, name = 'routed_experts') => `{"text":"a","meta_info":{"${name}":${value},"id":1.0}}`,
  'a batch': (value, name = 'routed_experts') => `[{"meta_info":{"n":1}}, {"meta_info":{"${name}": ${value}}}]`,
  'a chat with meta_info': (value, name = 'routed_experts') =>
    `{"choices":[{"index":0,"meta_info":{"${name}":${value}}}]}`,
  'a chat, a completion': (value, name = 'routed_experts') =>
    `{"choices":[{"index":0,"text":"a"}],"sglext":{"${name}":${value},"input_ids":[1]}}`,
};
for (const [form, said] of Object.entries(forms)) {
  test(`${form}: the rows of the prompt are the prefill engine’s, all other bytes stay`, () => {
    for (const name of ['routed_experts', 'indexer_topk']) {
      const [prefill, decode] = [said(`"${PREFILL}"`, name), said(`"${DECODE}"`, name)];
      assert.equal(merged(prefill, decode), said(`"${MERGED}"`, name));
      const events = [`data: ${prefill}\n\ndata: [DONE]\n\n`, `data: ${decode}\n\n`] as const;
      assert.equal(merged(...events, true), `data: ${said(`"${MERGED}"`, name)}\n\n`);
    }
  });

  test(`${form}: without rows of the prefill engine they are not known`, () => {
    const others = [`"${experts(1, 2, 3, 4, 5, 6)}"`, 'null', '7', '[1]'];
    for (const prefill of [...others.map((value) => said(value)), said('1', 'x'), 'oh dear, no'])
      assert.equal(merged(prefill, said(`"${DECODE}"`)), said('null'));
    // Rows that were left out by the request.
    assert.equal(merged(said('""'), said(`"${DECODE}"`)), said(`"${DECODE}"`));
    for (const decode of [said('null'), said('1', 'x')]) assert.equal(merged(said(`"${PREFILL}"`), decode), decode);
  });
}

test('a stream of several completions has the experts of one of them, which may be different ones', () => {
  const event = (value: string): string => `data: {"choices":[],"sglext":{"routed_experts":${value}}}\n\n`;
  assert.equal(merged(event(`"${PREFILL}"`), event(`"${DECODE}"`), true, 2), event('null'));
  assert.equal(merged(event(`"${PREFILL}"`), event(`"${DECODE}"`), true, 1), event(`"${MERGED}"`));
});
