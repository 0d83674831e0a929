import assert from 'node:assert/strict';
import { test } from 'node:test';
import { configSchema, envName, kebab, options } from './options.ts';

test('names follow from one spelling', () => {
  assert.equal(kebab('workerUrls'), 'worker-urls');
  assert.equal(kebab('caCertPath'), 'ca-cert-path');
  assert.equal(envName('workerUrls'), 'TURNOUT_WORKER_URLS');
});

test('no two options share a flag or a variable', () => {
  const names = Object.keys(options);
  assert.equal(new Set(names.map(kebab)).size, names.length);
  assert.equal(new Set(names.map(envName)).size, names.length);
});

test('every option has words, and a value in its help unless it is a flag', () => {
  for (const [name, { help, value, schema }] of Object.entries(options)) {
    assert.match(help, /\.$/, name);
    const isFlag = schema.safeParse(true).success;
    assert.equal(value === '', isFlag, name);
    if (!isFlag) assert.match(value, /^<[a-z]+(=[a-z]+)?(\.\.\.)?>$/, name);
  }
});

test('no time is longer than a timer of Node can wait', () => {
  for (const [name, { value, schema }] of Object.entries(options)) {
    // An age is compared, not waited for.
    if (value === '<secs>' && name !== 'storeMaxAgeSecs') assert.ok(!schema.safeParse(2_147_484).success, name);
    if (value === '<ms>') assert.ok(!schema.safeParse(2 ** 31).success, name);
  }
});

test('an option that is not in the list is refused', () => {
  assert.ok(configSchema.safeParse({}).success);
  assert.ok(!configSchema.safeParse({ porrt: 1 }).success);
});
