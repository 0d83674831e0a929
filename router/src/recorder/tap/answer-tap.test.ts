import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AnswerTap } from './answer-tap.ts';

const event = (value: unknown): string => `data: ${JSON.stringify(value)}\n\n`;
const choice = (reason: unknown, more: object = {}): string =>
  event({ choices: [{ index: 0, text: 'a', finish_reason: reason, ...more }], usage: null });

/** What a tap says after the last piece of a stream. */
function heard(stream: string, size: number): { finished: number; isEnding: boolean; isDone: boolean } {
  const tap = new AnswerTap(true, true, false);
  const bytes = Buffer.from(stream);
  const shared = Buffer.alloc(size, '"finish_reason":1\n\n');
  for (let at = 0; at < bytes.length; at += size) {
    const count = bytes.copy(shared, 0, at, at + size);
    tap.observe(shared, 0, count);
  }
  const { finished, isEnding, isDone } = tap;
  return { finished, isEnding, isDone };
}

const streams: [string, { finished: number; isEnding: boolean; isDone: boolean }][] = [
  [choice(null), { finished: 0, isEnding: false, isDone: false }],
  [choice(null) + choice('stop'), { finished: 1, isEnding: false, isDone: false }],
  [`${choice('stop')}data: [DONE]\n\n`, { finished: 1, isEnding: false, isDone: true }],
  [`${choice('stop')}data: [DONE]`, { finished: 1, isEnding: false, isDone: true }],
  [choice('stop').slice(0, -1), { finished: 0, isEnding: true, isDone: false }],
  [choice('stop').slice(0, -2), { finished: 0, isEnding: false, isDone: false }],
  [choice('stop') + choice(null) + choice('length'), { finished: 2, isEnding: false, isDone: false }],
  [
    event({ meta_info: { finish_reason: { type: 'stop', matched: 2 } } }),
    { finished: 1, isEnding: false, isDone: false },
  ],
  ['data: {"finish_reason" :\t"stop"}\n\n', { finished: 1, isEnding: false, isDone: false }],
  ['data: {"a": "finish_reason", "finish_reason": null}\n\n', { finished: 0, isEnding: false, isDone: false }],
  // Text that looks like it.
  [event({ text: '"finish_reason":"stop"\n\n data: [DONE]' }), { finished: 0, isEnding: false, isDone: false }],
  [choice('stop') + event({ text: 'data: [DONE]\n' }), { finished: 1, isEnding: false, isDone: false }],
];

for (const [stream, expected] of streams) {
  for (const [name, text] of [
    ['LF', stream],
    ['CRLF', stream.replaceAll('\n', '\r\n')],
  ] as const) {
    // The last LF of an empty line is left out with its CR.
    if (name === 'CRLF' && expected.isEnding) continue;
    test(`where a choice ends, in pieces of any size: ${JSON.stringify(text)}`, () => {
      for (let size = 1; size <= text.length; size++)
        assert.deepEqual(heard(text, size), expected, `in pieces of ${size}`);
    });
  }
}

/** An event of SGLang's `/generate`, with all tokens so far. */
const soFar = (index: number, tokens: number, version: string, reason: string | null = null): string => {
  const ids = Array.from({ length: tokens }, () => 7);
  const finish = reason === null ? null : { type: reason };
  return event({
    index,
    output_ids: ids,
    meta_info: { weight_version: version, completion_tokens: tokens, finish_reason: finish },
  });
};

test('of a cumulative stream that goes on, only the events of ended samples are taken', () => {
  const tap = new AnswerTap(true, false, true);
  const observe = (text: string): void => tap.observe(Buffer.from(text), 0, Buffer.byteLength(text));
  const take = (isLast: boolean): string => Buffer.concat(tap.take(isLast)).toString();
  observe(soFar(0, 1, 'a') + soFar(1, 1, 'a') + soFar(0, 2, 'a') + soFar(1, 2, 'a'));
  const end = soFar(0, 3, 'a', 'stop');
  observe(end);
  assert.equal(take(false), end);
  // Its version changes after the other sample was taken.
  const [before, after, last] = [soFar(1, 2, 'a'), soFar(1, 4, 'b'), soFar(1, 9, 'b')];
  observe(after + last);
  assert.equal(take(false), '', 'it goes on');
  assert.equal(take(true), before + after + last);
  assert.equal(take(true), '');
});

test('each of many samples is taken once, however often it came again', () => {
  const tap = new AnswerTap(true, false, true);
  const samples = 16;
  let ends = 0;
  let taken = 0;
  for (let ended = -2; ended < samples; ended++) {
    for (let i = Math.max(0, ended); i < samples; i++) {
      const text = Buffer.from(soFar(i, ended + 3, 'a', i === ended ? 'length' : null));
      tap.observe(text, 0, text.length);
      if (i === ended) ends += text.length;
    }
    if (ended >= 0) taken += tap.take(false).reduce((sum, { length }) => sum + length, 0);
  }
  assert.equal(taken, ends);
});

test('an abort is found wherever its event is split: the event before it has ids that it may lack', () => {
  const before = soFar(0, 3, 'a');
  const end = soFar(0, 3, 'a', 'abort');
  const stream = Buffer.from(soFar(0, 1, 'a') + soFar(0, 2, 'a') + before + end);
  for (let size = 1; size <= stream.length; size++) {
    const tap = new AnswerTap(true, true, true);
    for (let at = 0; at < stream.length; at += size) tap.observe(stream, at, Math.min(at + size, stream.length));
    assert.equal(Buffer.concat(tap.take()).toString(), before + end, `in pieces of ${size}`);
  }
});
