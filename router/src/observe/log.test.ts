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

test('a line of a plugin whose fields have the names of the line, and control characters in a message and beyond ASCII', () => {
  const time = '2026-11-22T07:05:11.123Z';
  // As pino writes a field that is there twice.
  const own = `{"level":"info","time":"${time}","level":3,"msg":"x"}`;
  assert.equal(textLine(own), `${time} 3       x\n`);
  const line = JSON.stringify({ level: 'info', time, session: '\u009b31m\u007f', msg: 'a\nb' });
  assert.equal(textLine(line), `${time} INFO    "a\\nb" session="\\u009b31m\\u007f"\n`);
  assert.equal(textLine(JSON.stringify({ level: 'info', time, msg: { a: 1 } })), `${time} INFO    {"a":1}\n`);
});
