import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { engineName, readNames, servedName } from './resource-names.ts';

const model = 'accounts/a/models/m';
const deployment = 'accounts/a/deployments/d';

for (const [text, wanted] of [
  [model, { model, deployment: '' }],
  [`${model}@step-1`, { model, deployment: '' }],
  [deployment, { model: '', deployment }],
  [`${model}#${deployment}`, { model, deployment }],
  [`${model}@step-1#${deployment}`, { model, deployment }],
  ['m', null],
  ['', null],
  ['accounts/a/models', null],
  ['accounts/a/models/m/more', null],
  ['accounts/a/adapters/m', null],
  [`${model}#d`, null],
  [`m#${deployment}`, null],
  [`x/${model}`, null],
] as const) {
  test(`"${text}" names ${JSON.stringify(wanted)}`, () => deepEqual(readNames(text), wanted));
}

const served = new Map([
  ['lora', '{"id":"lora","parent":"base"}'],
  ['base', '{"id":"base","parent":null}'],
  ['m', '{"id":"m"}'],
]);

test('an engine knows a model by the whole name, by its last part, or by its own', () => {
  equal(engineName({ model, deployment }, served, 'vllm'), 'm');
  equal(engineName({ model, deployment }, new Map([...served, [model, '{}']]), 'vllm'), model);
  equal(engineName({ model: 'accounts/a/models/lora', deployment: '' }, served, 'vllm'), 'lora');
  equal(engineName({ model: 'accounts/a/models/other', deployment: '' }, served, 'vllm'), 'base');
  equal(engineName({ model: '', deployment }, served, 'vllm'), 'base');
  equal(engineName({ model: '', deployment }, new Map(), 'vllm'), '');
});

test('with several models, a name that matches none of them maps to no model', () => {
  const isServed = (name: string): boolean => served.has(name);
  equal(servedName({ model, deployment }, isServed), 'm');
  equal(servedName({ model: 'accounts/a/models/other', deployment }, isServed), '');
  equal(servedName({ model: '', deployment }, isServed), '');
});

test('the adapter of a weight swap comes before all others, as each kind of engine wants it', () => {
  const swapped = new Map([...served, ['hot-load', '{"id":"hot-load","parent":"base"}']]);
  equal(engineName({ model, deployment }, swapped, 'vllm'), 'hot-load');
  equal(engineName({ model, deployment }, swapped, 'sglang'), 'base:hot-load');
});
