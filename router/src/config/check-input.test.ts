import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as z from 'zod';
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

test('a value that may have several types', () => {
  const texts = z.array(z.string().min(1));
  const schema = z.strictObject({
    labels: z.union([texts, z.record(z.string(), z.union([z.string(), z.boolean()]))]).optional(),
    workers: z.union([z.literal('all'), texts]).optional(),
  });
  const problemOf = (text: string) => checkJson(schema, text).problem;
  assert.equal(problemOf('{"labels": {"a": "b", "c": true}, "workers": "all"}'), null);
  assert.equal(problemOf('{"labels": "a"}'), 'labels: "a" is not a list or an object');
  assert.equal(problemOf('{"labels": [1]}'), 'labels: 0: 1 is not a text');
  assert.equal(problemOf('{"labels": [""]}'), 'labels.0: must not be empty');
  assert.equal(problemOf('{"labels": {"a": 1}}'), 'labels: a: 1 is not a text or true or false');
  assert.equal(problemOf('{"workers": "most"}'), 'workers: "most" is not "all" or a list');
});
