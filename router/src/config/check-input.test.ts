import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkJson } from './check-input.ts';
import { newWorker } from '../admin/workers/rest.ts';

test('what is wrong with a body is said without the words of a library', () => {
  const problemOf = (text: string) => checkJson(newWorker, text).problem ?? '';
  assert.match(problemOf('{"url"'), /^The body is not JSON: /);
  assert.equal(problemOf('{}'), 'url: is missing');
  assert.equal(problemOf(''), 'url: is missing');
  assert.equal(problemOf('{"url": 3}'), 'url: 3 is not a text');
  assert.equal(problemOf('[]'), 'The input [] is not an object');
  assert.equal(problemOf('{"url": "http://a:1"}'), '');
});
