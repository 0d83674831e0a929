import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { Exchange } from '../exchange.ts';
import type { ResultListener } from '../wire/result.ts';
import { RequestBody, RetryBudget } from '../wire/request-body.ts';
import { RequestHead } from '../wire/request-head.ts';
import type { Sink } from '../wire/sink.ts';
import { classify, normalPath } from './classify.ts';

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
  for (const [target, dialect] of Object.entries(dialects))
    assert.equal(exchangeOf(target).errorFormat, dialect, target);
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
  const ids = Array.from({ length: 3_000 }, () => exchangeOf('/').head.requestId);
  assert.equal(new Set(ids).size, 3_000);
  assert.equal(new Set(ids.map(({ length }) => length)).size, 1);
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

const segment = fc.stringMatching(/^[\w~-][\w.~-]{0,5}$/);
const path = fc.array(segment, { minLength: 1, maxLength: 5 }).map((segments) => `/${segments.join('/')}`);

test('a path in its normal form stays as it is, without its query', () => {
  fc.assert(
    fc.property(path, fc.constantFrom('', '?', '?a=/../b//%2e', '?x?y'), (path, query) => {
      assert.equal(normalPath(path + query), path);
    }),
  );
});

/** Another spelling of a path that means the same. */
const respelled = fc.tuple(path, fc.infiniteStream(fc.nat(9))).map(([path, choices]) => {
  const next = (): number => choices.next().value as number;
  const escape = (char: string): string => {
    const hex = char.charCodeAt(0).toString(16);
    return next() < 3 ? `%${next() < 5 ? hex : hex.toUpperCase()}` : char;
  };
  const slashes = ['/', '/', '//', '/./', '/x/../', '///', '/%2e/', '/x/%2E./', '/.//', '/'];
  const spelling = path.replaceAll(/[^/]|\//g, (char) => (char === '/' ? slashes[next()]! : escape(char)));
  return { path, spelling };
});

test('every other spelling of a path comes to the same form', () => {
  fc.assert(
    fc.property(respelled, ({ path, spelling }) => {
      assert.equal(normalPath(spelling), path);
    }),
    { numRuns: 1_000 },
  );
});

test('the form is a path, and its own form, whatever was sent', () => {
  const target = fc
    .array(fc.constantFrom('/', '.', '..', '%2e', '%2F', '%41', '%e9', 'a', '?', ';'))
    .map((parts) => parts.join(''));
  fc.assert(
    fc.property(target, (target) => {
      const form = normalPath(`/${target}`);
      assert.ok(form.startsWith('/'));
      assert.equal(normalPath(form), form);
      assert.ok(!/\/\.{0,2}\//.test(form), form);
    }),
  );
});

test('a backslash is a slash: URL parsers take it for one', () => {
  assert.equal(normalPath('/sessions/x\\..\\..\\workers?a=\\b'), '/workers');
  assert.equal(normalPath('/a\\b'), '/a/b');
});

test('dot segments never lead above the root', () => {
  assert.equal(normalPath('/../../a'), '/a');
  assert.equal(normalPath('/a/../..'), '/');
  assert.equal(normalPath('/a/%2e%2E/%2e./b'), '/b');
});

test('escapes of reserved characters stay, in one case', () => {
  assert.equal(normalPath('/a%3fb%3Bc'), '/a%3Fb%3Bc');
  assert.equal(normalPath('/a%25%32%65'), '/a%252e');
});

test('an escaped slash is a slash: uvicorn decodes the path before it looks for a route', () => {
  assert.equal(normalPath('/v1%2Fload_lora_adapter'), '/v1/load_lora_adapter');
  assert.equal(normalPath('/%2f/flush_cache'), '/flush_cache');
});

test('a slash at the end stays or goes, but always the same', () => {
  const forms = new Set(['/a/', '/a//', '/a/./', '/a/b/../', '/%61/'].map(normalPath));
  assert.equal(forms.size, 1, [...forms].join(' '));
});
