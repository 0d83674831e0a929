import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { EventSplitter, dataOf, joined, objectStarts } from './sse.ts';

/** What comes out of a splitter that is fed the text in parts. The cuts are places in the text. */
function split(text: string, cuts: readonly number[] = [], copies = false): { events: string[]; rest: string } {
  const bytes = Buffer.from(text, 'latin1');
  const splitter = new EventSplitter(joined);
  const events: string[] = [];
  let from = 0;
  for (const cut of [...cuts.toSorted((a, b) => a - b), bytes.length]) {
    const part = bytes.subarray(from, cut);
    for (const event of copies ? splitter.pushCopy(bytes, from, cut) : splitter.push(part))
      events.push(event.toString('latin1'));
    from = cut;
  }
  return { events, rest: splitter.end().toString('latin1') };
}

const lineEnd = fc.constantFrom('\n', '\r', '\r\n');
const line = fc.constantFrom('data: a', 'data: {"x":"\\n"}', ':', 'id: 1', 'é');
const text = fc.array(fc.oneof(line, lineEnd, lineEnd), { maxLength: 30 }).map((parts) => parts.join(''));
const cutText = text.chain((text) => fc.tuple(fc.constant(text), fc.array(fc.nat(text.length), { maxLength: 8 })));

test('any split gives the same events', () => {
  fc.assert(
    fc.property(cutText, ([text, cuts]) => {
      assert.deepEqual(split(text, cuts), split(text));
      assert.deepEqual(split(text, cuts, true), split(text));
    }),
    { numRuns: 2_000 },
  );
});

test('a byte at a time gives the same events', () => {
  fc.assert(
    fc.property(text, (text) => {
      assert.deepEqual(
        split(
          text,
          Array.from({ length: text.length }, (_, i) => i),
        ),
        split(text),
      );
    }),
    { numRuns: 500 },
  );
});

test('events and rest joined are what went in', () => {
  fc.assert(
    fc.property(cutText, ([text, cuts]) => {
      const { events, rest } = split(text, cuts);
      assert.equal(events.join('') + rest, text);
    }),
  );
});

test('an event ends at its first empty line, and the rest holds none', () => {
  const emptyLine = /(?:\r\n|\n|\r(?!\n)){2}/;
  fc.assert(
    fc.property(text, (text) => {
      const { events, rest } = split(text);
      for (const event of events) {
        const at = emptyLine.exec(event)!;
        assert.equal(at.index + at[0].length, event.length, JSON.stringify(event));
      }
      // Whether a CR at the very end is a line end by itself can't be told yet.
      assert.doesNotMatch(rest.replace(/\r$/, ''), emptyLine);
    }),
  );
});

test('every pair of line ends closes an event', () => {
  for (const first of ['\n', '\r', '\r\n']) {
    for (const second of ['\n', '\r', '\r\n']) {
      // CR and LF together are one line end, not two.
      if (first === '\r' && second === '\n') continue;
      const { events, rest } = split(`data: a${first}${second}data: b`);
      assert.deepEqual(events, [`data: a${first}${second}`]);
      assert.equal(rest, 'data: b');
    }
  }
});

test('after its end a splitter starts anew', () => {
  const splitter = new EventSplitter(joined);
  splitter.push(Buffer.from('data: a\n'));
  assert.equal(splitter.end().toString(), 'data: a\n');
  assert.deepEqual(splitter.push(Buffer.from('\n')), []);
  assert.equal(splitter.end().toString(), '\n');
  assert.equal(splitter.end().length, 0);
});

test('what came in pieces is joined as its reader likes, what did not comes as it is', () => {
  const splitter = new EventSplitter((pieces, bytes) => ({ text: pieces.map(String), bytes }));
  assert.deepEqual(splitter.push(Buffer.from('data: a\n')), []);
  assert.equal(splitter.heldBytes, 8);
  assert.deepEqual(splitter.push(Buffer.from('\ndata: b\n\nda')), [
    { text: ['data: a\n', '\n'], bytes: 9 },
    Buffer.from('data: b\n\n'),
  ]);
  assert.equal(splitter.heldBytes, 2);
  assert.deepEqual(splitter.end(), { text: ['da', ''], bytes: 2 });
  assert.equal(splitter.heldBytes, 0);
});

test('the objects in complete lines of data are found', () => {
  const text = 'event: a\ndata: {"a":1}\n\n: comment\ndata:{}\r\n\r\ndata: [{}]\n\ndata: [DONE]\n\ndata: {"cut":';
  assert.deepEqual(objectStarts(Buffer.from(text)), [text.indexOf('{"a"'), text.indexOf('{}')]);
  assert.deepEqual(objectStarts(Buffer.from('data: {}')), []);
  assert.deepEqual(objectStarts(Buffer.from('data:\ndata: [\n {"a":1}\n')), []);
});

test('the data of an event is found after other lines, where it has one line', () => {
  const found = (text: string): string | null => {
    const [start, end] = dataOf(Buffer.from(text));
    return start < 0 ? null : text.slice(start, end);
  };
  assert.equal(found('data: {"a":1}\n\n'), ' {"a":1}');
  assert.equal(found('event: a\n: comment\ndata:{}\nid: 1\n\n'), '{}');
  assert.equal(found('data: x'), ' x');
  for (const none of ['', ': data: x\n\n', 'event: data:\n\n', 'data: a\ndata: b\n\n', 'id: 1\ndata: a\ndata: b\n\n'])
    assert.equal(found(none), null, none);
});
