import assert from 'node:assert/strict';
import { test } from 'node:test';
import { judge, streamFaults } from './verdict.ts';

const pair = (name: string, virtual: number, sockets: number) => ({ name, virtual, sockets });

test('the same order and like makespans: they agree', () => {
  const verdict = judge([pair('a', 100, 110), pair('b', 120, 115), pair('c', 200, 180)]);
  assert.deepEqual(verdict, { faults: [], ordered: 3 });
});

test('another order counts only where virtual makespans lie apart', () => {
  assert.deepEqual(judge([pair('a', 100, 106), pair('b', 108, 104)]), { faults: [], ordered: 0 });
  const { faults, ordered } = judge([pair('a', 100, 106), pair('b', 109, 104)]);
  assert.equal(ordered, 1);
  assert.deepEqual(faults, ['b beats a over sockets, and loses to it in virtual time']);
});

test('a makespan that is too far off is a fault, on either side', () => {
  assert.deepEqual(judge([pair('a', 100, 114), pair('b', 100, 86)]).faults, []);
  assert.deepEqual(judge([pair('a', 100, 116)]).faults, ['a: 116 s over sockets, 100 s virtual']);
  assert.deepEqual(judge([pair('a', 100, 84)]).faults, ['a: 84 s over sockets, 100 s virtual']);
});

const figure = (name: string, virtual: number, deviation: number, sockets: number) => ({
  ...pair(name, virtual, sockets),
  deviation,
});

test('a figure of a stream that is too far off is a fault, and so is one that is not known', () => {
  assert.deepEqual(streamFaults([figure('a', 100, 1, 104), figure('b', 100, 1, 96)]), []);
  assert.deepEqual(streamFaults([figure('turns of a', 100, 1, 106), figure('b', 100, 1, Number.NaN)]), [
    'turns of a: 106 over sockets, 100 virtual',
    'b: NaN over sockets, 100 virtual',
  ]);
});

test('one that varies more than that by chance may deviate as far', () => {
  assert.deepEqual(streamFaults([figure('a', 100, 9, 117)]), []);
  assert.deepEqual(streamFaults([figure('a', 100, 9, 119)]), ['a: 119 over sockets, 100 virtual']);
});
