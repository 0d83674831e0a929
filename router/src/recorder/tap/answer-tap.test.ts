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
