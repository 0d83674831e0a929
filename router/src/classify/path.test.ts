import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { normalPath } from './path.ts';

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
