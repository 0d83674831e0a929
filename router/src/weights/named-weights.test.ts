import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NamedWeights } from './named-weights.ts';

const escaped = JSON.stringify({ text: '{"weight_version":"of the text","weight_versions":[{"version":"its span"}]}' });
const spans =
  '{"choices":[{"weight_versions":[{"version":"v1","start":0,"end":3},{"version":"v 2]","start":3,"end":9}]}]}';
const answers: readonly (readonly [string, string[]])[] = [
  [
    '{"meta_info":{"id":"a","weight_version":"default","weight_versions":[{"version":"default","start":0,"end":4}]}}',
    ['default'],
  ],
  ['{"metadata": {"weight_version": "st\\u00e9p", "x": 1}}', ['stép']],
  [
    '{"meta_info":{"weight_version":7}}{"meta_info":{"weight_version":8}}{"meta_info":{"weight_version":7}}',
    ['7', '8'],
  ],
  [spans.replace(']"', '"'), ['v1', 'v 2']],
  ['{"meta_info":{"weight_version":null,"weight_versions":[]}}', []],
  ['{"weight_version', []],
  [escaped, []],
];

test('the names of weights are found wherever a response is divided', () => {
  for (const [answer, wanted] of answers) {
    const bytes = Buffer.from(answer);
    for (let cut = 0; cut <= bytes.length; cut++) {
      const found: string[] = [];
      const named = new NamedWeights((name) => found.push(name));
      named.push(bytes, 0, cut);
      named.push(bytes, cut, bytes.length);
      assert.deepEqual(found, wanted, `${answer}, cut at ${cut}`);
      assert.equal(named.last, answer.includes('weight_version":8') ? '7' : (wanted.at(-1) ?? null));
    }
  }
});

test('byte by byte too', () => {
  for (const [answer, wanted] of answers) {
    const found: string[] = [];
    const named = new NamedWeights((name) => found.push(name));
    const bytes = Buffer.from(answer);
    for (let at = 0; at < bytes.length; at++) named.push(bytes, at, at + 1);
    assert.deepEqual(found, wanted, answer);
  }
});
