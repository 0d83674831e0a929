import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from '../../test/harness/fast-check.ts';
import { BAD, INCOMPLETE, ascii, field, readField, readLength, spells } from './fields.ts';
import { RequestHead } from './request-head.ts';

/** The head of a request with these lines; its Host is never passed on. */
function headOf(...lines: string[]): RequestHead {
  const bytes = Buffer.from(`POST / HTTP/1.1\r\nhost: h\r\n${lines.map((l) => `${l}\r\n`).join('')}\r\n`, 'latin1');
  const head = new RequestHead();
  assert.ok(head.read(bytes, 0, bytes.length) > 0, head.refusal?.message);
  return head;
}

const name = fc.constantFrom('x-a', 'X-A', 'x-b', 'X-Bc', 'accept', 'x-a-b', 'a');
const line = fc.tuple(name, fc.constantFrom('', ' ', '\t '), fc.stringMatching(/^[!-~]{0,8}$/)).map((parts) => ({
  name: parts[0],
  value: parts[2],
  text: `${parts[0]}:${parts[1]}${parts[2]}`,
}));
const lines = fc.array(line, { maxLength: 8 });

test('all lines are passed on as they came, in their order', () => {
  fc.assert(
    fc.property(lines, (lines) => {
      const head = headOf(...lines.map(({ text }) => text));
      assert.equal(head.passedOn(), lines.map(({ text }) => `${text}\r\n`).join(''));
      assert.deepEqual(
        head.pairs(),
        lines.map(({ name, value }) => [name, value]),
      );
    }),
  );
});

test('dropping a name takes out every line of it and no other, in any order and however often', () => {
  fc.assert(
    fc.property(lines, fc.array(name, { maxLength: 5 }), (lines, dropped) => {
      const head = headOf(...lines.map(({ text }) => text));
      const gone = new Set(dropped.map((name) => name.toLowerCase()));
      for (const name of dropped) head.drop(name.toLowerCase());
      const left = lines.filter(({ name }) => !gone.has(name.toLowerCase()));
      assert.equal(head.passedOn(), left.map(({ text }) => `${text}\r\n`).join(''));
    }),
  );
});

test('get finds the first value whatever the case of the name, and not a part of a name', () => {
  fc.assert(
    fc.property(lines, name, (lines, name) => {
      const head = headOf(...lines.map(({ text }) => text));
      const first = lines.find((line) => line.name.toLowerCase() === name.toLowerCase());
      assert.equal(head.get(name.toLowerCase()), first?.value);
    }),
  );
});

test('get finds lines that were added, after those that came', () => {
  fc.assert(
    fc.property(lines, lines, name, (lines, added, name) => {
      const head = headOf(...lines.map(({ text }) => text));
      head.add(added.map(({ text }) => `${text}\r\n`).join(''));
      const first = [...lines, ...added].find((line) => line.name.toLowerCase() === name.toLowerCase());
      assert.equal(head.get(name.toLowerCase()), first?.value);
    }),
  );
});

test('a value keeps its last byte when that is 0xA0, as in UTF-8 "à"', () => {
  const value = Buffer.from('voilà').toString('latin1');
  const head = headOf(`x-name: ${value} \t`);
  assert.equal(head.get('x-name'), value);
  assert.deepEqual(head.pairs(), [['x-name', value]]);
});

test('setLength announces the body in place of the framing that was dropped', () => {
  const head = headOf('transfer-encoding: chunked', 'x-a: 1');
  head.setLength(42);
  assert.equal(head.contentLength, 42);
  assert.ok(!head.isChunked);
  assert.equal(head.passedOn(), 'x-a: 1\r\ncontent-length: 42\r\n');
  const other = headOf('content-length: 7', 'x-a: 1');
  other.setLength(0);
  assert.equal(other.passedOn(), 'x-a: 1\r\ncontent-length: 0\r\n');
  other.setLength(null);
  assert.deepEqual([other.passedOn(), other.isChunked, other.contentLength], ['x-a: 1\r\n', true, -1]);
});

test('every line that a Connection names is dropped, from all Connection lines', () => {
  const head = headOf('X-A: 1', 'connection: x-a ,X-B', 'x-b: 2', 'x-c: 3', 'Connection: x-a-b', 'x-a-b: 4', 'x-b: 5');
  assert.equal(head.passedOn(), 'x-c: 3\r\n');
});

test('a line is wrong only once it is whole', () => {
  for (const text of ['x : y\r\n', ' x: y\r\n', 'x: \0\r\n', 'x: a\rb\r\n', 'x: y\n', '\xe9: y\r\n', ': y\r\n']) {
    const bytes = Buffer.from(text, 'latin1');
    for (let end = 0; end < bytes.length; end++) assert.equal(readField(bytes, 0, end), INCOMPLETE, text);
    assert.equal(readField(bytes, 0, bytes.length), BAD, text);
    assert.notEqual(field.refusal, '');
  }
});

test('a length is up to sixteen digits and no more than a safe integer', () => {
  const lengthOf = (text: string): number => readLength(Buffer.from(`<${text}>`), 1, text.length + 1);
  fc.assert(fc.property(fc.maxSafeNat(), (length) => assert.equal(lengthOf(`${length}`), length)));
  for (const text of ['', '-1', '+1', ' 1', '1 ', '1a', '9007199254740992', '00000000000000001', '٣']) {
    assert.equal(lengthOf(text), -1, text);
  }
});

test('spelling is compared whatever the case, and never beyond the ends', () => {
  const name = fc.stringMatching(/^[a-z-]{1,20}$/);
  const mixed = name.chain((lower) =>
    fc.array(fc.boolean(), { minLength: lower.length, maxLength: lower.length }).map((ups) => ({
      lower,
      spelled: [...lower].map((char, i) => (ups[i] === true ? char.toUpperCase() : char)).join(''),
    })),
  );
  fc.assert(
    fc.property(mixed, fc.string(), fc.string(), ({ lower, spelled }, before, after) => {
      const bytes = Buffer.from(before + spelled + after);
      const start = Buffer.byteLength(before);
      assert.ok(spells(bytes, start, start + spelled.length, ascii(lower)));
      assert.ok(!spells(bytes, start, start + spelled.length - 1, ascii(lower)));
    }),
  );
});

test('bytes that differ from a letter in the case bit only do not spell it', () => {
  assert.ok(!spells(Buffer.from('x\rte'), 0, 4, ascii('x-te')));
  assert.ok(!spells(Buffer.from('x'), 0, 1, ascii('y')));
  assert.ok(!spells(Buffer.from('@'), 0, 1, ascii('`')));
});
