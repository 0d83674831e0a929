import { deepEqual, equal } from 'node:assert/strict';
import { test } from 'node:test';
import { generate } from '../engines/dialects/generate.ts';
import { Asked } from './asked.ts';

const asked = (text: string): Asked => Asked.read(generate, Buffer.from(text))!;

test('media without data are none, nested to any depth', () => {
  const deep = 200_000;
  const nested = (inside: string): string => '['.repeat(deep) + inside + ']'.repeat(deep);
  for (const none of ['null', '[]', '[ null, [ ] ]', nested(' null'), nested('')]) {
    equal(asked(`{"text":"a","image_data":${none}}`).hasMedia, false, none.slice(0, 20));
  }
  for (const some of ['"a"', '[null,"null"]', '{}', '[[0]]', nested('"a"')]) {
    equal(asked(`{"text":"a","audio_data":${some}}`).hasMedia, true, some.slice(0, 20));
  }
});

test('a stream is asked for with every truth value that engines take', () => {
  for (const yes of ['true', '1', '"true"', '"1"']) equal(asked(`{"stream":${yes}}`).isStream, true, yes);
  for (const no of ['false', '0', '"false"', 'null', '2', '"x"']) equal(asked(`{"stream":${no}}`).isStream, false, no);
});

test('parameters are those of the object, and none of anything else', () => {
  deepEqual(asked('{"sampling_params":{"n":3}}').param('n'), 3);
  for (const given of ['[{"n":3}]', 'null', '"n"']) equal(asked(`{"sampling_params":${given}}`).params, null);
});
