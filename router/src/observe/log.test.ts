import assert from 'node:assert/strict';
import { test } from 'node:test';
import { textLine } from './log.ts';

test('a line for people: time, level, message, fields; nothing in a field can end the line or look like another field', () => {
  const fields = {
    worker: 'http://w:1',
    detail: 'two words',
    session: 'a\nb',
    forged: 'x worker=other',
    n: 1.5,
    none: null,
  };
  const json = JSON.stringify({
    level: 'warning',
    time: '2026-11-22T07:05:11.123Z',
    ...fields,
    msg: 'request refused',
  });
  assert.equal(
    textLine(`${json}\n`),
    '2026-11-22T07:05:11.123Z WARNING request refused worker=http://w:1 detail="two words" session="a\\nb" forged="x worker=other" n=1.5 none=null\n',
  );
});
