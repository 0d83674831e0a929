import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Area, affectsOthers, decide } from './authorizer.ts';

type Key = 'none' | 'data' | 'admin';

function status(area: Area, configured: readonly Key[], shown: Key, port: 'one' | 'data' | 'admin' = 'one'): number {
  const rules = {
    hasDataKeys: configured.includes('data'),
    hasAdminKeys: configured.includes('admin'),
    hasAdminPort: port !== 'one',
  };
  const caller = {
    holdsDataKey: shown === 'data',
    holdsAdminKey: shown === 'admin',
    isOnAdminPort: port === 'admin',
  };
  return decide(area, rules, caller)?.status ?? 200;
}

test('without keys everything is open', () => {
  for (const area of ['open', 'metrics', 'data', 'admin'] as const) assert.equal(status(area, [], 'none'), 200, area);
});

test('--api-key alone guards everything but probes', () => {
  assert.equal(status('open', ['data'], 'none'), 200);
  for (const area of ['metrics', 'data', 'admin'] as const) {
    assert.equal(status(area, ['data'], 'none'), 401, area);
    assert.equal(status(area, ['data'], 'data'), 200, area);
  }
});

test('--admin-api-key alone guards what steers, and metrics', () => {
  assert.equal(status('data', ['admin'], 'none'), 200);
  assert.equal(status('metrics', ['admin'], 'none'), 401);
  assert.equal(status('admin', ['admin'], 'none'), 401);
  for (const area of ['metrics', 'data', 'admin'] as const) assert.equal(status(area, ['admin'], 'admin'), 200, area);
});

test('with both, steering needs an admin key, which is good for the rest too', () => {
  const both = ['data', 'admin'] as const;
  assert.deepEqual(
    (['open', 'metrics', 'data', 'admin'] as const).map((area) => [
      status(area, both, 'none'),
      status(area, both, 'data'),
      status(area, both, 'admin'),
    ]),
    [
      [200, 200, 200],
      [401, 200, 200],
      [401, 200, 200],
      [401, 403, 200],
    ],
  );
});

test('with a port of its own, what steers is not taken on the other one, whatever the key', () => {
  for (const key of ['none', 'data', 'admin'] as const) {
    assert.equal(status('admin', ['data', 'admin'], key, 'data'), 403);
    assert.equal(status('admin', [], key, 'data'), 403);
    assert.equal(status('admin', [], key, 'admin'), 200);
  }
  assert.equal(status('admin', ['admin'], 'none', 'admin'), 401);
  assert.equal(status('data', [], 'none', 'data'), 200);
  assert.equal(status('data', [], 'none', 'admin'), 200);
});

const sglang = (body: string | Buffer): boolean => affectsOthers('/abort_request', Buffer.from(body));
const vllm = (body: string): boolean => affectsOthers('/abort_requests', Buffer.from(body));

test('SGLang: one request by its id, and nothing else', () => {
  for (const body of [
    '{"rid":"rid-0001"}',
    '{"rid":"rid-0001","abort_all":false}',
    '{"abort_all":true,"abort_all":false,"rid":"rid-0001"}',
  ])
    assert.ok(!sglang(body), body);
  for (const body of [
    '{"abort_all":true}',
    '{"rid":"rid-0001","abort_all":true}',
    '{"rid":"rid-0001","abort_all":1}',
    '{"rid":"rid-0001","abort_all":"yes"}',
    '{"rid":"rid-0001","abort_\\u0061ll":true}',
    '{"abort_all":false,"abort_all":true,"rid":"rid-0001"}',
    '{"rid":""}',
    '{"rid":"rid-000"}',
    '{"rid":null}',
    '{}',
    '',
    'null',
    '[]',
    '{"rid":["a"]}',
    '{"request_ids":["a"]}',
    '{"rid":"rid-0001"',
    '{"rid":"rid-0001","rid":""}',
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
  assert.ok(sglang(Buffer.from('{"rid":"rid-0001"}', 'utf16le')));
  assert.ok(sglang(`\uFEFF{"rid":"rid-0001"}`));
  assert.ok(sglang(`{"rid":"rid-0001","x":"${'x'.repeat(70_000)}"}`));
});
