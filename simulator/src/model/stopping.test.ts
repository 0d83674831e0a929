import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Sequence, type Sampling } from './sequence.ts';
import { finishOf } from './sequence.ts';
import { encode, endOfTurn } from '../tokens/tokenizer.ts';

function sequence(text: string, sampling: Partial<Sampling>, extra: number[] = []): Sequence {
  const made = new Sequence('x', [1], {
    maxTokens: 100,
    minTokens: 0,
    temperature: 0,
    topK: 0,
    sampleSeed: 0,
    ignoreEos: false,
    stopTexts: [],
    stopIds: [],
    showStop: false,
    showSpecial: false,
    ...sampling,
  });
  for (const id of [...encode(text), ...extra]) made.append(id, 0, 'v');
  made.finish = finishOf(made);
  return made;
}

test('goes on until something ends it', () => {
  assert.equal(sequence(' the moon', {}).finish, null);
  assert.deepEqual(sequence(' the moon', { maxTokens: 2 }).finish, { type: 'length' });
});

test('the end of the turn stops it and is not text, unless the request ignores or shows it', () => {
  const ended = sequence(' the', {}, [endOfTurn]);
  assert.deepEqual(ended.finish, { type: 'stop', matched: endOfTurn });
  assert.equal(ended.text(), ' the');
  assert.equal(sequence(' the', { showStop: true, showSpecial: true }, [endOfTurn]).text(), ' the<|im_end|>');
  assert.equal(sequence(' the', { showSpecial: true }, [endOfTurn]).text(), ' the');
  assert.equal(sequence(' the', { ignoreEos: true }, [endOfTurn]).finish, null);
  assert.equal(sequence(' the', { minTokens: 5 }, [endOfTurn]).finish, null);
});

test('stop texts are cut off, across tokens too; vLLM holds back what may become one, and shows no more than it', () => {
  const stopped = sequence(' the moon', { stopTexts: ['e mo'] });
  assert.deepEqual(stopped.finish, { type: 'stop', matched: 'e mo' });
  assert.equal(stopped.text(), ' th');
  const cases = [
    [' the moon', true, ' the moon', ' the mo'],
    [' the', false, ' the', ' '],
    [' the', true, ' the', ' the'],
  ] as const;
  for (const [text, showStop, sglang, vllm] of cases) {
    const made = sequence(text, { stopTexts: ['e mo'], showStop });
    assert.equal(made.text(), sglang);
    made.isOfVllm = true;
    assert.equal(made.text(), vllm);
  }
});

test('stop ids end it and their text goes', () => {
  const [the] = encode(' the');
  const stopped = sequence(' moon the', { stopIds: [the!] });
  assert.deepEqual(stopped.finish, { type: 'stop', matched: the });
  assert.equal(stopped.text(), ' moon');
});

test('spans tell which weights made which tokens', () => {
  const made = sequence('', {});
  made.append(300, 0, 'a');
  made.append(301, 0, 'a');
  made.append(302, 0, 'b');
  assert.deepEqual(made.spans, [
    { version: 'a', start: 0, end: 2 },
    { version: 'b', start: 2, end: 3 },
  ]);
});
