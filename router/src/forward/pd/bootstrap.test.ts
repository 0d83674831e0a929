import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { RouterError } from '../../kit/errors.ts';
import { addBootstrap } from './bootstrap.ts';

const place = { host: '10.0.0.7', port: 8998 };

/** @returns what was put in, and checks that nothing else was changed. */
function added(body: string, path = '/generate', at = place as { host: string; port: number | null }): string {
  const out = addBootstrap(path, Buffer.from(body), at);
  assert.ok('bytes' in out, (out as RouterError).message);
  const end = body.lastIndexOf('}');
  const text = out.bytes.toString();
  assert.equal(text.slice(0, end), body.slice(0, end));
  assert.ok(text.endsWith(body.slice(end)));
  return text.slice(end, text.length - (body.length - end));
}

const single = /^,?"bootstrap_host":"10\.0\.0\.7","bootstrap_port":8998,"bootstrap_room":\d{1,19}$/;

test('three fields at the end, and every other byte stays', () => {
  assert.match(added('{"text":"a"}'), /^,"/);
  assert.match(added('{"text":"a"}'), single);
  assert.match(added('{}'), /^"bootstrap_host"/);
  assert.match(added(' \r\n{ \t} \n'), /^"bootstrap_host"/);
  assert.match(added('{ "seed" : 9223372036854775807 ,\n "t": 1.10, "text":"\\u00e9 }" \n } '), single);
  assert.match(added('{"bootstrap_room":1,"text":"a","bootstrap_host":"x"}'), single);
});

test('no port: null', () => {
  assert.match(
    added('{"text":"a"}', '/generate', { host: '::1', port: null }),
    /^,"bootstrap_host":"::1","bootstrap_port":null,/,
  );
});

test('rooms are below 2^63, exact and never the same', () => {
  const rooms = Array.from({ length: 500 }, () => /(\d+)$/.exec(added('{"text":"a"}'))![1]!);
  assert.equal(new Set(rooms).size, 500);
  assert.ok(rooms.every((room) => BigInt(room) < 2n ** 63n));
  assert.ok(rooms.some((room) => BigInt(room) > 2n ** 60n));
});

const batches: [path: string, body: string, size: number][] = [
  ['/generate', '{"text":["a","b","c"]}', 3],
  ['/generate', '{"text":["a"]}', 1],
  ['/generate', '{"input_ids":[[1,2],[3]]}', 2],
  ['/generate', '{"text":null,"input_ids":[[1,2],[3]]}', 2],
  ['/generate', '{"input_ids":[1,2,3]}', -1],
  ['/generate', '{"text":"[\\"a\\"]"}', -1],
  ['/generate', '{"prompt":["a","b"]}', -1],
  ['/v1/completions', '{"prompt":["a","b"]}', 2],
  ['/v1/completions', '{"prompt":[[1],[2],[3]]}', 3],
  ['/v1/completions', '{"prompt":[1,2]}', -1],
  ['/v1/completions', '{"prompt":"a","n":1}', -1],
  ['/generate', '{"text":"a","n":4,"sampling_params":{"n":1}}', -1],
  ['/generate', '{"text":["a","b"],"sampling_params":[{"n":1},{}]}', 2],
  ['/v1/chat/completions', '{"messages":[],"n":1}', -1],
  ['/v1/chat/completions', '{"messages":[],"n":null}', -1],
];
for (const [path, body, size] of batches) {
  test(`${path} ${body}: ${size < 0 ? 'one' : `lists of ${size}`}`, () => {
    const fields = JSON.parse(`{${added(body, path).replace(/^,/, '')}}`) as Record<string, unknown[]>;
    const lengths = Object.values(fields).map((value) => (Array.isArray(value) ? value.length : -1));
    assert.deepEqual(lengths, [size, size, size]);
    if (size > 0) assert.equal(new Set(fields['bootstrap_room']).size, size);
  });
}

for (const body of ['', 'x', '[]', '"a"', '{"a":1', '{"a":1} x', '{"a" 1}', '\ufeff{}', '{"a":1}{"b":2}']) {
  test(`${JSON.stringify(body)} is refused`, () => {
    const refused = addBootstrap('/generate', Buffer.from(body), place);
    assert.ok(refused instanceof RouterError);
    assert.equal(refused.status, 400);
  });
}

test('a batch beyond all measure is refused', () => {
  const body = Buffer.from(`{"text":["a"${',"a"'.repeat(65_536)}]}`);
  const refused = addBootstrap('/generate', body, place);
  assert.ok(refused instanceof RouterError);
  assert.equal(refused.status, 400);
});

const several: [path: string, body: string][] = [
  ['/v1/completions', '{"prompt":"a","n":2}'],
  ['/v1/chat/completions', '{"messages":[],"n":8}'],
  ['/generate', '{"text":"a","sampling_params":{"max_new_tokens":4,"n":2}}'],
  ['/generate', '{"text":["a","b","c"],"sampling_params":[{"n":1},{"n":3},{}]}'],
];
for (const [path, body] of several) {
  test(`${path} ${body}: several samples are refused`, () => {
    const refused = addBootstrap(path, Buffer.from(body), place);
    assert.ok(refused instanceof RouterError);
    assert.equal(refused.status, 501);
  });
}

test('which requests ask for something of the prompt', () => {
  const asks = (body: string, path = '/generate') => {
    const out = addBootstrap(path, Buffer.from(body), place);
    return 'bytes' in out && out.asksOfPrompt;
  };
  for (const name of ['return_routed_experts', 'return_indexer_topk']) {
    for (const path of ['/generate', '/v1/completions', '/v1/chat/completions']) {
      assert.ok(asks(`{"${name}":true}`, path));
      assert.ok(asks(`{"${name}":1}`, path));
      assert.ok(!asks(`{"${name}":false}`, path));
      assert.ok(!asks(`{"${name}":null,"x":true}`, path));
    }
  }
  assert.ok(asks('{"text":"a","return_logprob":true}'));
  assert.ok(asks('{"return_logprob":[false,true]}'));
  assert.ok(!asks('{"return_logprob":false,"text":"return_logprob true"}'));
  assert.ok(!asks('{"text":"a"}'));
  assert.ok(!asks('{"return_logprob":true}', '/v1/completions'));
});

test('whatever the object: what a reader finds is the same, and three fields', () => {
  const objects = fc.dictionary(fc.string(), fc.jsonValue(), { maxKeys: 6 });
  fc.assert(
    fc.property(objects, fc.constantFrom('', ' ', '\t', '\n  '), (object, space) => {
      const out = addBootstrap('/generate', Buffer.from(JSON.stringify(object, null, space)), place);
      assert.ok('bytes' in out);
      const { bootstrap_host, bootstrap_port, bootstrap_room, ...rest } = JSON.parse(out.bytes.toString());
      assert.deepEqual([bootstrap_host, bootstrap_port, typeof bootstrap_room], ['10.0.0.7', 8998, 'number']);
      assert.deepEqual(rest, JSON.parse(JSON.stringify(object)));
    }),
    { numRuns: 300 },
  );
});

test('lists in lists hold no parameters, to any depth', () => {
  const nested = `{"text":["a"],"sampling_params":[${'['.repeat(200_000)}{"n":2}${']'.repeat(200_000)}]}`;
  assert.match(added(nested), /"bootstrap_room":\[\d+\]$/);
});
