import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../test/harness/fast-check.ts';
import { clientModel, labelledBody, labelledEvent } from './label-bytes.ts';

test('the model of a request is found', () => {
  const cases: [string, string][] = [
    ['{"model":"accounts/a/models/m","x":1}', 'accounts/a/models/m'],
    [' { "x" : [{"model":"inner"}] , "model" : "a\\u002fb" } ', 'a/b'],
    ['{"model":"first","model":"last"}', 'last'],
    ['{"model":7}', ''],
    ['{"model":"open', ''],
    ['{}', ''],
    ['[1]', ''],
    ['', ''],
  ];
  for (const [body, expected] of cases) assert.equal(clientModel(Buffer.from(body)), expected, body);
});

test('only the value of model changes', () => {
  const name = 'accounts/a/models/m';
  const cases: [string, string][] = [
    [
      '{"id":"1","model":"sim","choices":[{"model":"inner","seed":12345678901234567890}]}',
      '{"id":"1","model":"accounts/a/models/m@v2","choices":[{"model":"inner","seed":12345678901234567890}]}',
    ],
    [
      '{"choices":[{"text":"\\"model\\""}], "model" : "sim" }',
      '{"choices":[{"text":"\\"model\\""}], "model" : "accounts/a/models/m@v2" }',
    ],
    ['{"error":{"message":"no"}}', '{"error":{"message":"no"}}'],
    ['{"model":null}', '{"model":null}'],
    ['no JSON', 'no JSON'],
  ];
  for (const [body, expected] of cases) assert.equal(labelledBody(Buffer.from(body), name, 'v2').toString(), expected);
  assert.equal(
    labelledBody(Buffer.from('{"model":"sim"}'), '', 'v2').toString(),
    '{"model":"sim@v2"}',
    "the engine's name",
  );
});

test('of an event the data is changed, whatever its line ends; other events stay', () => {
  const label = (event: string): string => labelledEvent(Buffer.from(event), 'm', 'v.1_2-3').toString();
  assert.equal(label('data: {"model":"sim","choices":[]}\n\n'), 'data: {"model":"m@v.1_2-3","choices":[]}\n\n');
  assert.equal(label('data:{"model":"sim"}\r\n\r\n'), 'data:{"model":"m@v.1_2-3"}\r\n\r\n');
  for (const other of ['data: [DONE]\n\n', ': ping\n\n', 'data: {"error":{}}\n\n', '\n'])
    assert.equal(label(other), other);
});

test('for any JSON object, parsing the result differs in model alone', () => {
  const json = fc.record({ before: fc.jsonValue(), model: fc.string(), after: fc.jsonValue() });
  fc.assert(
    fc.property(json, fc.string(), (value, name) => {
      const body = Buffer.from(JSON.stringify(value));
      const made = JSON.parse(labelledBody(body, `x${name}`, 'v2').toString()) as unknown;
      assert.deepEqual(made, JSON.parse(JSON.stringify({ ...value, model: `x${name}@v2` })));
    }),
  );
});
