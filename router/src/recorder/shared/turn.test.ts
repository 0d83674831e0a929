import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { exchangeOf } from '../../../test/harness/policy.ts';
import { timesOf } from './turn.ts';

test('the time to the first token of a stream is not that to its head, which engines may send before', () => {
  const x = exchangeOf({});
  const startMs = x.startMs;
  Object.assign(x, { firstByteMs: startMs + 1, firstTokenMs: startMs + 5, endMs: startMs + 9 });
  const { ttftMs, generationMs } = timesOf(x, true);
  equal(ttftMs, 5);
  equal(generationMs, 4);
  equal(timesOf(x, false).ttftMs, null);
  // A stream without a body.
  x.firstTokenMs = null;
  equal(timesOf(x, true).ttftMs, 1);
});
