import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../../../test/harness/fast-check.ts';
import {
  decode,
  encode,
  endOfTurn,
  firstWord,
  pieceBytes,
  vocabSize,
} from '../../../../../simulator/src/tokens/tokenizer.ts';
import { cutAnswer } from './cut-answer.ts';
import { messageKey } from './equality.ts';
import type { Message } from '../read/message.ts';
import type { ChatTurn } from './session-tree.ts';

const pieces = { bytesOf: (id: number): Buffer => Buffer.from(pieceBytes(id)) };
const asked = encode('<|im_start|>assistant\n');

/** A turn with this answer. */
function turnOf(sampled: readonly number[], content = decode(sampled, false)): ChatTurn {
  const messages: Message[] = [
    { role: 'user', content: 'a' },
    { role: 'assistant', content },
  ];
  return {
    id: '1',
    parent: null,
    children: [],
    messages,
    keys: messages.map((message) => messageKey(message, 'strict')),
    depth: 2,
    index: 0,
    keeps: 0,
    ids: Int32Array.from([...asked, ...sampled]),
    sampled: sampled.length,
    text: decode(asked) + decode(sampled),
    rest: '',
    isAfresh: true,
    isTorn: false,
    rendering: { tools: null, more: new Map() },
  };
}

/** The tokens that are found for a part of an answer, and the text of it that is of none. */
function found(turn: ChatTurn, content: string): { sampled: number[]; rest: string } | null {
  const cut = cutAnswer(turn, { role: 'assistant', content }, 'strict', pieces);
  if (cut === null) return null;
  assert.deepEqual([...cut.ids.subarray(0, asked.length)], asked);
  assert.equal(cut.sampled, cut.ids.length - asked.length);
  assert.equal(cut.text, decode(cut.ids));
  return { sampled: [...cut.ids.subarray(asked.length)], rest: cut.rest };
}

test('an answer of a million U+FFFD is searched in linear time', () => {
  const answer = `${'\ufffd'.repeat(1_000_000)}x`;
  assert.equal(found(turnOf(encode(' the'), answer), answer.slice(0, 9)), null);
});

test('bytes that are no character are found by their U+FFFD', () => {
  const [first, second, third] = encode('日') as [number, number, number];
  // The end of a letter that another answer began, a letter, and one that breaks off.
  const sampled = [
    second,
    third,
    ...encode(' the'),
    first,
    second,
    third,
    first,
    second,
    ...encode(' often'),
    endOfTurn,
  ];
  const turn = turnOf(sampled);
  assert.deepEqual(found(turn, '\ufffd'), { sampled: sampled.slice(0, 1), rest: '' });
  assert.deepEqual(found(turn, '\ufffd\ufffd'), { sampled: sampled.slice(0, 2), rest: '' });
  assert.deepEqual(found(turn, '\ufffd\ufffd the'), { sampled: sampled.slice(0, 3), rest: '' });
  assert.deepEqual(found(turn, '\ufffd\ufffd the日'), { sampled: sampled.slice(0, 6), rest: '' });
  assert.deepEqual(found(turn, '\ufffd\ufffd the日\ufffd'), { sampled: sampled.slice(0, 8), rest: '' });
  assert.deepEqual(found(turn, '\ufffd\ufffd the日\ufffd oft'), { sampled: sampled.slice(0, 8), rest: ' oft' });
  assert.equal(found(turn, '\ufffd the'), null);
});

const sampledIds = fc.array(
  fc.oneof(
    fc.integer({ min: 0, max: 255 }),
    fc.constantFrom(...encode('é日👩')),
    fc.integer({ min: firstWord, max: vocabSize - 1 }),
  ),
  { minLength: 1, maxLength: 12 },
);

test('the beginning of an answer is that of its tokens, whatever bytes they are', () => {
  fc.assert(
    fc.property(sampledIds, fc.nat(), (sampled, at) => {
      const turn = turnOf([...sampled, endOfTurn]);
      const whole = decode(sampled, false);
      const kept = sampled.slice(0, at % sampled.length);
      const content = decode(kept, false);
      const cut = found(turn, content);
      // A letter of which the client has a part is another one in the answer.
      if (!whole.startsWith(content) || content === whole) return;
      assert.equal(cut!.rest, '');
      assert.equal(decode(cut!.sampled, false), content);
    }),
    { numRuns: 1_000 },
  );
});
