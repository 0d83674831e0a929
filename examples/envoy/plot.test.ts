import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { type TimedTurn, plotBatches, stepsOf } from './plot.ts';

const turn = (session: string, worker: string | null, startSeconds: number, endSeconds: number): TimedTurn => ({
  session,
  index: 0,
  attempts: 1,
  error: '',
  startSeconds,
  endSeconds,
  answer:
    worker === null
      ? null
      : { worker, text: '', reason: '', ttftMs: 1, ms: 1, promptTokens: 1, cachedTokens: 0, outputTokens: 1 },
});

const turns = [turn('a', 'http://e:1', 0, 2), turn('b', 'http://e:1', 1, 4), turn('a', 'http://e:2', 2, 3)];

test('requests in flight of an engine', () => {
  deepEqual(stepsOf(turns, 'http://e:1'), [
    [0, 1],
    [1, 2],
    [2, 1],
    [4, 0],
  ]);
});

test('every turn is a box in the colour of its engine, on the lane of its session', () => {
  const failed = turn('c', null, 3, 4);
  const engines = ['http://e:1', 'http://e:2'];
  const svg = plotBatches([{ title: 'a < b', engines, turns: [...turns, failed] }]);
  const boxes = [...svg.matchAll(/<rect x="[\d.]+" y="(\d+)" width="([\d.]+)" height="2" fill="(#\w+)"/g)];
  equal(boxes.length, 4);
  const [first, moved, other, broken] = boxes.map(([, y, width, fill]) => ({ y, width: Number(width), fill }));
  equal(first!.y, moved!.y);
  ok(first!.y !== other!.y && first!.fill !== moved!.fill && first!.fill === other!.fill);
  ok(Math.abs(first!.width - 2 * moved!.width) < 0.3);
  equal(broken!.fill, '#ff0000');
  ok(svg.includes('a &lt; b') && svg.includes('engine 2') && !svg.includes('engine 3'));
});
