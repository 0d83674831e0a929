import assert from 'node:assert/strict';
import { test } from 'node:test';
import { affectsOthers } from './abort-scope.ts';

const sglang = (body: string | Buffer): boolean => affectsOthers('/abort_request', Buffer.from(body));
const vllm = (body: string): boolean => affectsOthers('/abort_requests', Buffer.from(body));

test('SGLang: one request by its id, and nothing else', () => {
  for (const body of ['{"rid":"a"}', '{"rid":"a","abort_all":false}', '{"abort_all":true,"abort_all":false,"rid":"a"}'])
    assert.ok(!sglang(body), body);
  for (const body of [
    '{"abort_all":true}',
    '{"rid":"a","abort_all":true}',
    '{"rid":"a","abort_all":1}',
    '{"rid":"a","abort_all":"yes"}',
    '{"rid":"a","abort_\\u0061ll":true}',
    '{"abort_all":false,"abort_all":true,"rid":"a"}',
    '{"rid":""}',
    '{"rid":null}',
    '{}',
    '',
    'null',
    '[]',
    '{"rid":["a"]}',
    '{"request_ids":["a"]}',
    '{"rid":"a"',
    '{"rid":"a","rid":""}',
  ]) {
    assert.ok(sglang(body), body);
  }
});

test('vLLM: requests in a list of ids; none is all', () => {
  for (const body of ['{"request_ids":["a"]}', '{"request_ids":[ "a" , "b" ]}']) assert.ok(!vllm(body), body);
  for (const body of [
    '{"request_ids":[]}',
    '{"request_ids":[""]}',
    '{"request_ids":["a",""]}',
    '{"request_ids":null}',
    '{"rid":"a"}',
    '{}',
    '{"request_ids":"a"}',
    '{"request_ids":[1]}',
    '{"request_ids":["a"],"request_ids":[]}',
  ]) {
    assert.ok(vllm(body), body);
  }
});

test('a body that only an engine can read counts as everything', () => {
  assert.ok(sglang(Buffer.from('{"rid":"a"}', 'utf16le')));
  assert.ok(sglang(`\uFEFF{"rid":"a"}`));
  assert.ok(sglang(`{"rid":"a","x":"${'x'.repeat(70_000)}"}`));
});
