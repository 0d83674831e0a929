import { equal } from 'node:assert/strict';
import { test } from 'node:test';
import { clock, count, counted, duration, percent, rate, shortUrl } from './format.ts';

const cases: readonly (readonly [text: string, expected: string])[] = [
  [count(0), '0'],
  [count(12_400), '12,400'],
  [count(1_240_000), '1.24M'],
  [count(null), '–'],
  [rate(0), '0'],
  [rate(0.42), '0.4'],
  [rate(99.96), '100.0'],
  [rate(840.4), '840'],
  [rate(12_400), '12.4k'],
  [rate(Number.NaN), '–'],
  [percent(0.8), '80%'],
  [percent(0.034), '3.4%'],
  [percent(0), '0%'],
  [percent(1), '100%'],
  [percent(null), '–'],
  [duration(0.0024), '2.4 ms'],
  [duration(0), '0 ms'],
  [duration(0.85), '850 ms'],
  [duration(1.236), '1.24 s'],
  [duration(42), '42 s'],
  [duration(192), '3 min 12 s'],
  [duration(179.6), '3 min 0 s'],
  [duration(3_599.7), '1 h 0 min'],
  [duration(7_500), '2 h 5 min'],
  [duration(200_000), '2 d 7 h'],
  [shortUrl('http://10.0.0.7:8000@2'), '10.0.0.7:8000@2'],
  [counted(1, 'worker'), '1 worker'],
  [counted(3, 'worker'), '3 workers'],
  [counted(null, 'worker'), '– workers'],
];

for (const [text, expected] of cases) test(expected, () => equal(text, expected));

test('a time of another day has its date', () => {
  const now = new Date(2026, 10, 27, 0, 30).getTime();
  equal(clock(new Date(2026, 10, 27, 0, 3, 7).getTime(), now), '00:03:07');
  equal(clock(new Date(2026, 10, 26, 23, 59, 59).getTime(), now), '26 Nov 23:59:59');
  equal(clock(new Date(2025, 10, 27, 0, 30).getTime(), now), '27 Nov 00:30:00');
});
