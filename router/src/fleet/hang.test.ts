import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { HangJudge, type Look, type Verdict } from './hang.ts';

const options = { failureThreshold: 3, hungAfterMs: 60_000, maxPauseMs: 600_000 };

const well: Look = {
  askedMs: 0,
  nowMs: 0,
  isAnswering: true,
  isWell: true,
  isPaused: false,
  mayBePaused: false,
  running: 2,
  progress: '1',
};
const silent: Look = { ...well, isAnswering: false, isWell: false, running: null };
const late: Look = { ...well, isWell: false };

/** Looks one after the other, a second apart where they don't say when. */
function judged(looks: readonly Look[], own: Partial<typeof options> = {}): Verdict[] {
  const judge = new HangJudge({ ...options, ...own });
  return looks.map((look, i) => {
    const nowMs = look.nowMs || i * 1000;
    return judge.judge({ ...look, askedMs: look.askedMs || nowMs, nowMs });
  });
}
const hangs = (verdict: Verdict | undefined): boolean => typeof verdict === 'object';

test('an engine that answers nothing at all hangs after as many looks as put a worker out', () => {
  assert.deepEqual(judged([silent, silent, silent]).map(hangs), [false, false, true]);
  assert.deepEqual(judged([silent, silent], { failureThreshold: 1 }).map(hangs), [false, true]);
});

test('one answer of any kind starts that count again', () => {
  assert.deepEqual(judged([silent, silent, late, silent, silent]).map(hangs), [false, false, false, false, false]);
});

test('an engine with running requests and the same figures for a minute hangs, and not a moment earlier', () => {
  const at = (nowMs: number): Look => ({ ...well, nowMs });
  assert.deepEqual(judged([at(1), at(30_000), at(60_000), at(60_001)]).map(hangs), [false, false, false, true]);
});

test('figures that were read late prove nothing of the time since the engine was asked', () => {
  const at = (askedMs: number, nowMs: number): Look => ({ ...late, askedMs, nowMs });
  const looks = [at(1, 10), at(1_000, 90_000), at(60_009, 90_010), at(60_010, 90_020)];
  assert.deepEqual(judged(looks).map(hangs), [false, false, false, true]);
});

test('any token that is read or made starts the minute again', () => {
  const at = (nowMs: number, progress: string): Look => ({ ...late, nowMs, progress });
  const verdicts = judged([at(1, 'a'), at(59_000, 'a'), at(59_500, 'b'), at(119_000, 'b'), at(119_500, 'b')]);
  assert.deepEqual(verdicts.map(hangs), [false, false, false, false, true]);
});

test('without running requests nothing can be stuck', () => {
  assert.deepEqual(judged([1, 70_000, 140_000].map((nowMs) => ({ ...well, nowMs, running: 0 }))), [
    'works',
    'works',
    'works',
  ]);
});

test('an engine that reports no figures is not judged by them, however late its health check is', () => {
  const looks = [1, 100_000, 200_000].map((nowMs) => ({ ...late, nowMs, running: null }));
  assert.deepEqual(judged(looks), ['unclear', 'unclear', 'unclear']);
});

test('where it may be paused, the minute becomes the longest pause', () => {
  const at = (nowMs: number, mayBePaused: boolean): Look => ({ ...late, nowMs, mayBePaused });
  const looks = [at(1, true), at(2, true), at(100_000, true), at(600_001, true)];
  assert.deepEqual(judged(looks).map(hangs), [false, false, false, true]);
});

test('what says later on that it may be paused, and did not when it stopped, hangs', () => {
  const at = (nowMs: number, mayBePaused: boolean): Look => ({ ...late, nowMs, mayBePaused });
  const looks = [at(1, false), at(2, false), at(30_000, true), at(60_002, true)];
  assert.deepEqual(judged(looks).map(hangs), [false, false, false, true]);
});

test('a known pause is never a proof, in whatever else is seen', () => {
  const look = fc.record({
    isAnswering: fc.boolean(),
    isWell: fc.boolean(),
    mayBePaused: fc.boolean(),
    running: fc.option(fc.nat(3)),
    progress: fc.constantFrom('a', 'b'),
    gapMs: fc.nat(700_000),
  });
  fc.assert(
    fc.property(fc.array(look, { maxLength: 12 }), (looks) => {
      const judge = new HangJudge(options);
      let nowMs = 0;
      for (const { gapMs, ...seen } of looks) {
        nowMs += gapMs;
        assert.equal(judge.judge({ ...seen, askedMs: nowMs, nowMs, isPaused: true }), 'unclear');
      }
    }),
  );
});

test('it works again when its figures move, or it has nothing to do any more', () => {
  const at = (nowMs: number, more: Partial<Look>): Look => ({ ...well, nowMs, ...more });
  const looks = [at(1, {}), at(60_002, {}), at(60_003, {}), at(61_000, { progress: 'more' })];
  assert.deepEqual(
    judged(looks).map((verdict) => (hangs(verdict) ? 'hangs' : verdict)),
    ['works', 'hangs', 'hangs', 'works'],
  );
});
