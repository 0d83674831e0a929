import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf } from '../../test/harness/policy.ts';
import { loadConfig } from '../config/load.ts';
import type { KeyOrder, SessionField } from '../config/options/routing.ts';
import { Exchange } from '../exchange.ts';
import type { ResultListener } from '../wire/result.ts';
import { RequestBody, RetryBudget } from '../wire/request-body.ts';
import { RequestHead } from '../wire/request-head.ts';
import type { Sink } from '../wire/sink.ts';
import { BodyReader, FactReader } from './body-reader.ts';
import { classify } from './classify.ts';
import { keyOrders } from './routing-keys.ts';

const { sessionHeaders } = loadConfig({}, {}, undefined);

function exchange(headers: readonly string[], body: string | readonly string[]): Exchange {
  const bytes = Buffer.from(['POST /generate HTTP/1.1', 'host: h', ...headers, '', ''].join('\r\n'));
  const head = new RequestHead();
  assert.ok(head.read(bytes, 0, bytes.length) > 0);
  const pieces = typeof body === 'string' ? [body] : body;
  const requestBody = new RequestBody(new RetryBudget(1e9), () => {});
  for (const piece of pieces) if (piece !== '') requestBody.push(Buffer.from(piece));
  requestBody.finish();
  const x = new Exchange({} as ResultListener<Exchange>, head, requestBody, {} as Sink, 0);
  classify(x, []);
  return x;
}

function read(
  headers: readonly string[],
  body: string | readonly string[] = '',
  order: KeyOrder = 'turnout',
  names: readonly string[] = sessionHeaders,
): Exchange {
  const x = exchange(headers, body);
  const reader = new BodyReader(keyOrders[order](names));
  if (!reader.readHead(x)) reader.readBody(x, true, () => {});
  return x;
}

const keyOf = (x: Exchange): string => (x.key === null ? 'none' : `${x.key.kind} ${x.key.source} ${x.key.value}`);

const allHeaders = [
  'X-Trace-Id: trace',
  'X-Correlation-Id: correlation',
  'X-Request-Id: request',
  'X-Tenant-Id: tenant',
  'X-User-Id: user',
  'X-Litellm-Session-Id: litellm',
  'X-Claude-Code-Session-Id: claude',
  'Conversation_Id: conversation',
  'Session_Id: codex-old',
  'Session-Id: codex',
  'Thread-Id: thread',
  'X-Session-Id: id',
  'X-Session-Affinity: affinity',
  'X-Multi-Turn-Session-Id: multi',
  'X-SMG-Routing-Key: smg',
];
const allFields = {
  user_id: 'b-user-id',
  user: 'b-user',
  session_id: 'b-id',
  prompt_cache_key: 'b-cache',
  session_params: { session_id: 'b-params', id: 'b-session' },
  routing_key: 'b-routing',
  metadata: { session_id: 'b-metadata', user_id: 'b-metadata-user' },
};

/** Takes the key that was found away, again and again: the order in which keys are believed. */
function findingOrder(order: KeyOrder): string[] {
  const headers = [...allHeaders];
  const fields: Record<string, Record<string, unknown> | string> = structuredClone(allFields);
  const found: string[] = [];
  for (;;) {
    const x = read(headers, JSON.stringify(fields), order);
    const { source, kind } = x.key!;
    if (kind === 'content') return found;
    found.push(`${kind} ${source}`);
    const [place, name] = source.split(':') as [string, string];
    if (place === 'header')
      headers.splice(
        headers.findIndex((line) => line.toLowerCase().startsWith(`${name}:`)),
        1,
      );
    else {
      const [outer, inner] = name.split('.') as [string, string?];
      if (inner !== undefined) delete (fields[outer] as Record<string, unknown>)[inner];
      else delete fields[outer];
    }
  }
}

test('keys are believed in the order of what they say', () => {
  assert.deepEqual(findingOrder('turnout'), [
    'session header:x-smg-routing-key',
    'session header:x-multi-turn-session-id',
    'session header:x-session-affinity',
    'session header:x-session-id',
    'session header:thread-id',
    'session header:session-id',
    'session header:session_id',
    'session header:conversation_id',
    'session header:x-claude-code-session-id',
    'session header:x-litellm-session-id',
    'session body:session_params.session_id',
    'session body:session_params.id',
    'session body:prompt_cache_key',
    'session body:session_id',
    'session body:routing_key',
    'session body:metadata.session_id',
    'tenant header:x-user-id',
    'tenant header:x-tenant-id',
    'tenant body:user',
    'tenant body:user_id',
    'tenant body:metadata.user_id',
    'request header:x-request-id',
    'request header:x-correlation-id',
    'request header:x-trace-id',
  ]);
});

test('a field that is for a user is a session key if its value names a session', () => {
  const uuid = '57a121ec-f78c-48c3-a745-e3036a3ecc33';
  const old = `user_${'0f'.repeat(32)}_account__session_${uuid}`;
  const recent = JSON.stringify({ device_id: 'd', account_uuid: '', session_id: uuid });
  for (const user of [old, recent]) {
    assert.equal(
      keyOf(read([], JSON.stringify({ metadata: { user_id: user } }))),
      `session body:metadata.user_id ${uuid}`,
    );
    assert.equal(keyOf(read(['x-user-id: u'], JSON.stringify({ user }))), `session body:user ${uuid}`);
  }
  for (const user of [
    'alice',
    'user_session_',
    'x_session_a b',
    '{"session_id":7}',
    '{"a":1}',
    '{',
    'nosession_12345678',
  ]) {
    for (const body of [{ user }, { metadata: { user_id: user } }]) {
      const { key } = read([], JSON.stringify(body));
      assert.deepEqual([key!.kind, key!.value, key!.mayBeSession], ['tenant', user, true], user);
    }
  }
  assert.equal(read([], '{"user_id":"alice"}').key!.mayBeSession, undefined);
});

test('fields of sessions can be chosen', () => {
  const body = JSON.stringify({ ...allFields, user: 'u_session_12345678' });
  const withFields = (...fields: SessionField[]): string => {
    const x = exchange([], body);
    const reader = new BodyReader(keyOrders.turnout([], fields));
    if (!reader.readHead(x)) reader.readBody(x, true, () => {});
    return keyOf(x);
  };
  assert.equal(withFields('routing_key', 'session_id'), 'session body:routing_key b-routing');
  assert.equal(withFields('user'), 'session body:user 12345678');
  assert.equal(withFields(), 'tenant body:user u_session_12345678');
  const x = exchange([], '{"user":"alice"}');
  new BodyReader(keyOrders.turnout([], [])).readBody(x, false, () => {});
  assert.equal(x.key!.mayBeSession, undefined);
});

test("vllm-router's order is that of its documentation, with the hash of the body as the eleventh", () => {
  assert.deepEqual(findingOrder('vllm-router'), [
    'session header:x-session-id',
    'tenant header:x-user-id',
    'tenant header:x-tenant-id',
    'request header:x-request-id',
    'request header:x-correlation-id',
    'request header:x-trace-id',
    'session body:session_params.session_id',
    'tenant body:user',
    'session body:session_id',
    'tenant body:user_id',
  ]);
});

test('a session header is enough: the body is not waited for', () => {
  const reader = new BodyReader(keyOrders.turnout(sessionHeaders));
  assert.equal(reader.readHead(exchange(['x-session-id: s'], '{"session_id":"other"}')), true);
  assert.equal(reader.readHead(exchange(['x-user-id: u'], '{"session_id":"s"}')), false);
  assert.equal(reader.readHead(exchange(['x-user-id: u'], '')), true);
  const vllm = new BodyReader(keyOrders['vllm-router']([]));
  assert.equal(vllm.readHead(exchange(['x-trace-id: t'], '{"session_params":{"session_id":"s"}}')), true);
});

test('session headers can be chosen', () => {
  assert.equal(
    keyOf(read(['x-rollout: r', 'x-session-id: s'], '', 'turnout', ['x-rollout'])),
    'session header:x-rollout r',
  );
  assert.equal(keyOf(read(['x-session-id: s'], '', 'turnout', ['x-rollout'])), 'none');
});

test('text in a prompt is never a key', () => {
  const prompt = 'user_id: 7, "user": "eve", {"session_id": "x"} \\" "session_params": {"session_id": "y"}';
  for (const body of [
    { prompt },
    { messages: [{ role: 'user', content: prompt, user: 'nested', session_id: 'nested' }] },
    { text: prompt, session_params: { other: { session_id: 'deeper' } } },
    { metadata: { user: 'nested', inner: { session_id: 'deeper', user_id: 'deeper' } } },
    { input_ids: [1, 2, 3], session_params: ['session_id', 's'] },
  ]) {
    assert.equal(read([], JSON.stringify(body)).key?.kind, 'content', JSON.stringify(body));
  }
});

test('keys are numbers of any size, strings with escapes, never null, empty or a structure', () => {
  assert.equal(keyOf(read([], '{"session_id": 18446744073709551617}')), 'session body:session_id 18446744073709551617');
  assert.equal(keyOf(read([], '{"\\u0075ser": "a\\n\\u00e9"}')), 'tenant body:user a\né');
  for (const value of ['null', '""', '{}', '["a"]']) {
    assert.equal(read([], `{"session_id": ${value}, "user": "u"}`).key?.kind, 'tenant', value);
  }
  assert.equal(keyOf(read([], '{"user":"first","user":"last"}')), 'tenant body:user last');
});

test('a request id that the router made up is no key; one of the client is', () => {
  assert.equal(keyOf(read([])), 'none');
  assert.equal(keyOf(read(['x-request-id: mine'])), 'request header:x-request-id mine');
  assert.equal(keyOf(read(['x-request-id: \u00e9'])), 'none');
});

test('without any key the body is one, however it was cut into pieces', () => {
  const whole = read([], '{"prompt":"hello","n":1}');
  assert.equal(whole.key?.kind, 'content');
  assert.deepEqual(read([], ['{"pro', 'mpt":"hello"', ',"n":1}']).key, whole.key);
  assert.notDeepEqual(read([], '{"prompt":"hello","n":2}').key, whole.key);
  assert.equal(read([], 'not json').key?.kind, 'content');
  assert.equal(whole.session, '');
});

test('a byte order mark is part of a key, in a header as in a body', () => {
  assert.equal(keyOf(read(['x-session-id: \ufeffa'])), 'session header:x-session-id \ufeffa');
  assert.equal(keyOf(read([], '{"session_id":"\ufeffa"}')), 'session body:session_id \ufeffa');
});

test('keys with different unpaired surrogates are different, also as UTF-8', () => {
  const user = JSON.stringify('{"session_id":"\\ud800 in user"}');
  const bodies = [
    '"\\ud800"',
    '"\\ud801"',
    '"\\udc00"',
    '"\\ufffd"',
    '"a\\ud800"',
    `"${'a'.repeat(600)}\\ud800"`,
    `"${'a'.repeat(600)}\\ud801"`,
  ];
  const values = [...bodies.map((text) => `{"session_id":${text}}`), `{"user":${user}}`].map(
    (body) => read([], body).key!.value,
  );
  assert.equal(new Set(values.map((value) => Buffer.from(value).toString())).size, values.length);
  assert.ok(values.every((value) => value.isWellFormed()));
  assert.equal(read([], '{"session_id":"\\ud83d\\ude00"}').key!.value, '\u{1f600}');
});

test('a key that is very long is replaced by its hash', () => {
  const key = read(['x-session-id: ' + 'k'.repeat(2_000)]).key!;
  assert.ok(key.value.length < 40);
  assert.notEqual(read(['x-session-id: ' + 'k'.repeat(1_999)]).key!.value, key.value);
  // Their hashes of 32 bits are the same.
  const [one, other] = ['158998', '274697'].map((i) => `${'p'.repeat(590)}/${i}xxx`);
  assert.notEqual(read([`x-session-id: ${one}`]).key!.value, read([`x-session-id: ${other}`]).key!.value);
});

test('a key in the body that is very long is replaced by its hash, the same as in a header', () => {
  const long = 'k'.repeat(600);
  const longer = 'k'.repeat(250_000);
  const valueOf = (text: string): string => read([], `{"session_id":${text}}`).key!.value;
  assert.equal(valueOf(`"${long}"`), read([`x-session-id: ${long}`]).key!.value);
  assert.equal(valueOf(`"${long.replace('k', '\\u006b')}"`), valueOf(`"${long}"`));
  assert.match(valueOf(`"${longer}"`), /^hash:[\da-z]+:250000$/);
  assert.notEqual(valueOf(`"${longer}"`), valueOf(`"${longer.slice(1)}j"`));
  // As Python writes it.
  assert.equal(valueOf(`"${'\\u65e5'.repeat(600)}"`), read([`x-session-id: ${'日'.repeat(600)}`]).key!.value);
  // As long as a key may be, in the longest way to write it.
  assert.equal(valueOf(`"${'\\u00e9'.repeat(512)}"`), 'é'.repeat(512));
  for (const structure of [`["${longer}"]`, `{"a":"${longer}"}`, '9'.repeat(10_000)]) {
    assert.equal(read([], `{"session_id":${structure}}`).key!.kind, 'content');
  }
});

test('a very long group is replaced by its hash, a very long model name is ignored', () => {
  assert.match(read(['x-turnout-group: ' + 'g'.repeat(600)]).group, /^hash:[\da-z]+:600$/);
  const modelOf = (name: string): string => read([], JSON.stringify({ model: name })).model;
  assert.equal(modelOf('m'.repeat(512)).length, 512);
  for (const chars of [513, 5_000, 250_000]) assert.equal(modelOf('m'.repeat(chars)), '');
});

test('group and model are read', () => {
  const x = read(['x-turnout-group: g7'], '{"model":"m","prompt":"p"}');
  assert.deepEqual([x.group, x.model], ['g7', 'm']);
});

const story = 'Once upon a time there was a router that lost nothing. '.repeat(40);
const ids = Array.from({ length: 600 }, (_, i) => 1_000 + i);

for (const [field, value, longer] of [
  ['text', story, `${story}And then`],
  ['prompt', story, `${story}And then`],
  ['input_ids', ids, [...ids, 7, 8]],
  ['token_ids', ids, [...ids, 7, 8]],
  ['prompt', [ids], [[...ids, 7, 8]]],
  [
    'messages',
    [{ role: 'user', content: story }],
    [
      { role: 'user', content: story },
      { role: 'assistant', content: 'hm' },
    ],
  ],
] as const) {
  test(`the prompt in ${field} (${typeof value === 'string' ? 'text' : 'list'}): a later turn begins with it`, () => {
    const body = (prompt: unknown): string[] => {
      const text = JSON.stringify({ temperature: 1, [field]: prompt, max_tokens: 5 });
      return [text.slice(0, 100), text.slice(100, 777), text.slice(777)];
    };
    const one = read([], body(value)).prompt!;
    const two = read([], body(longer)).prompt!;
    assert.equal(one.field, field);
    assert.ok(one.blocks.length > 10);
    assert.deepEqual([...two.blocks.subarray(0, one.blocks.length)], [...one.blocks]);
    assert.notEqual(one.hash, two.hash);
    assert.equal(read([], body(value)).prompt!.hash, one.hash);
    if (typeof value !== 'string' && field !== 'messages')
      assert.ok(Math.abs(one.tokens - 600) < 12, String(one.tokens));
    else assert.ok(Math.abs(one.tokens - one.bytes / 4) <= 1);
  });
}

test('no prompt: none is made up', () => {
  for (const body of ['', '{}', '{"prompt":null}', '{"prompt":7}', '{"text":', 'x'.repeat(100)]) {
    assert.equal(read([], body).prompt, null, body);
  }
});

test('a policy that needs nothing has its exchange at once; one that needs more has what it needs', () => {
  const reader = new BodyReader(keyOrders.turnout([]));
  const body = JSON.stringify({ model: 'm', user: 'u', prompt: 'p'.repeat(100) });
  const seen = Object.fromEntries(
    (['nothing', 'headers', 'key', 'prompt', 'ids'] as const).map((needs) => {
      const x = exchangeOf({ headers: ['content-type: application/json', `content-length: ${body.length}`], body });
      let calls = 0;
      new FactReader({ needs, needsModel: false, knowsSession: () => false }, reader).prepare(x, () => calls++);
      assert.equal(calls, 1);
      return [needs, [x.key?.value ?? null, x.prompt?.bytes ?? null]];
    }),
  );
  assert.deepEqual(seen, {
    nothing: [null, null],
    headers: [null, null],
    key: ['u', null],
    prompt: ['u', 100],
    ids: ['u', 100],
  });
});
