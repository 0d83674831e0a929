import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withNamespace, withRank } from './request-fields.ts';

const set = (body: string, engine: 'vllm' | 'sglang', namespace: string): string =>
  withNamespace(Buffer.from(body), engine, namespace).toString();
const salt = (body: object, namespace: string): unknown =>
  (JSON.parse(set(JSON.stringify(body), 'vllm', namespace)) as { cache_salt?: unknown }).cache_salt;

test('before the first reset, and for engines without such a field, nothing is added', () => {
  for (const body of ['{"prompt":"a"}', '{"cache_salt":"own"}', '{"prompt_cache_isolation_key":null}']) {
    assert.equal(set(body, 'vllm', ''), body);
  }
  const body = Buffer.from('{"prompt":"a"}');
  for (const engine of ['openai', null] as const) assert.equal(withNamespace(body, engine, 'v2.1'), body);
});

test('each engine gets its own field; every other byte stays', () => {
  const before = '{"prompt":"a", "seed":12345678901234567890 }';
  assert.match(
    set(before, 'vllm', 'v2.1'),
    /^\{"prompt":"a", "seed":12345678901234567890 ,"cache_salt":"turnout:[\w-]{43}"\}$/,
  );
  assert.match(set('{}', 'sglang', 'v2.1'), /^\{"extra_key":"turnout:[\w-]{43}"\}$/);
  for (const broken of ['', '[1]', '{"a":']) assert.equal(set(broken, 'vllm', 'v2.1'), broken);
});

test('the same namespace has the same salt, another one another', () => {
  assert.equal(salt({ prompt: 'a' }, 'v2.1'), salt({ prompt: 'b' }, 'v2.1'));
  assert.notEqual(salt({}, 'v2.1'), salt({}, 'v2.2'));
});

test("the client's own salt and isolation key are parts of it", () => {
  const bodies = [
    {},
    { cache_salt: 'x' },
    { prompt_cache_isolation_key: 'x' },
    { cache_salt: 'x', prompt_cache_isolation_key: 'x' },
    { cache_salt: 'y', prompt_cache_isolation_key: 'x' },
  ];
  const salts = bodies.map((body) => salt(body, 'v2.1'));
  assert.equal(new Set(salts).size, bodies.length, salts.join());
  assert.equal(typeof salt({ prompt_cache_isolation_key: 'x' }, ''), 'string', 'isolation needs no reset');
});

test('a list of keys has one namespace for each prompt', () => {
  const { extra_key: keys } = JSON.parse(set('{"extra_key":["a","b","a"]}', 'sglang', 'v2.1')) as {
    extra_key: string[];
  };
  assert.equal(keys.length, 3);
  assert.equal(keys[0], keys[2]);
  assert.notEqual(keys[0], keys[1]);
  assert.deepEqual(JSON.parse(set('{"extra_key":"a"}', 'sglang', 'v2.1')), { extra_key: keys[0] });
});

const changed = (text: string): string => withRank(Buffer.from(text), 3).toString();

test('the rank becomes the first member, and every other byte stays', () => {
  assert.equal(
    changed('\n { "seed": 9007199254740993,"text":"é\\u00e9" }\n'),
    '\n {"data_parallel_rank":3, "seed": 9007199254740993,"text":"é\\u00e9" }\n',
  );
  assert.equal(changed('{}'), '{"data_parallel_rank":3}');
  assert.equal(changed('{ }'), '{"data_parallel_rank":3 }');
});

test('a body that names a rank stays as it is, in whatever place and spelling', () => {
  for (const text of [
    '{"text":"x","data_parallel_rank":7}',
    '{"routed_dp_rank":0}',
    '{"routed_dp_rank":null,"text":"x"}',
    '{"data_parallel_\\u0072ank":1}',
  ]) {
    const body = Buffer.from(text);
    assert.equal(withRank(body, 3), body, text);
  }
  assert.match(
    changed('{"x":{"routed_dp_rank":1}}'),
    /^\{"data_parallel_rank":3,/,
    'one in a nested object does not count',
  );
});

test('what is no JSON object is for the engine to refuse', () => {
  for (const text of ['', '[]', '"{}"', '{"text":', '{"a":1 "b":2}', '\u001f\u008b']) {
    const body = Buffer.from(text);
    assert.equal(withRank(body, 3), body, text);
  }
});

test('a request with many members gets its namespace too', () => {
  const body = { prompt: 'a', ...Object.fromEntries(Array.from({ length: 5_000 }, (_, i) => [`m${i}`, 0])) };
  assert.equal(salt({ ...body, prompt_cache_isolation_key: 'k' }, ''), salt({ prompt_cache_isolation_key: 'k' }, ''));
  assert.ok(salt({ ...body, prompt_cache_isolation_key: 'k' }, ''));
  assert.equal(salt(body, 'v2.1'), salt({}, 'v2.1'));
});
