import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { fakeTime } from '../../test/harness/fake-time.ts';
import { AnswerTimer } from './answer-timer.ts';

const LIMITS = { requestMs: 0, firstByteMs: 1_000, idleMs: 3_000 };

for (const idleMs of [0, 3_000]) {
  test(`an answer that begins before its request is sent has no limit on its first byte (idleMs ${idleMs})`, async (t) => {
    const time = fakeTime(t);
    let expired = 0;
    const timer = new AnswerTimer({ ...LIMITS, idleMs }, () => expired++);
    timer.answerBegan();
    timer.requestSent();
    for (let i = 0; i < 10; i++) {
      time.advance(500);
      await turn();
      timer.heard();
    }
    equal(expired, 0);
    time.advance(3_000);
    await turn();
    equal(expired, idleMs === 0 ? 0 : 1);
  });
}

test('the first byte has its time from the end of the request', async (t) => {
  const time = fakeTime(t);
  let expired = 0;
  const timer = new AnswerTimer(LIMITS, () => expired++);
  time.advance(2_000);
  timer.requestSent();
  time.advance(999);
  await turn();
  equal(expired, 0);
  time.advance(1);
  await turn();
  equal(expired, 1);
});

test('a timer that is stopped does not expire, whatever it waited for', async (t) => {
  const time = fakeTime(t);
  let expired = 0;
  for (const event of ['requestSent', 'answerBegan'] as const) {
    const timer = new AnswerTimer(LIMITS, () => expired++);
    timer[event]();
    timer.stop();
  }
  time.advance(10_000);
  await turn();
  equal(expired, 0);
});
