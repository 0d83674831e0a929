import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ChunkedReader, MAX_IGNORED_BYTES } from './chunked.ts';

/** A reader with what it handed on, fed with text. */
function reader(keepsFraming: boolean): { chunks: ChunkedReader; read(text: string): boolean; taken(): string } {
  let taken = '';
  const chunks = new ChunkedReader(keepsFraming, (bytes, start, end) => {
    taken += Buffer.from(bytes).toString('latin1', start, end);
  });
  return {
    chunks,
    read: (text) => chunks.read(Buffer.from(text, 'latin1'), 0, text.length),
    taken: () => taken,
  };
}

test('the payload comes without its chunk lines, or all with them', () => {
  const text = '3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n';
  const plain = reader(false);
  assert.ok(plain.read(text));
  assert.equal(plain.taken(), 'abc0123456789');
  assert.equal(plain.chunks.payloadBytes, 13);
  const framed = reader(true);
  assert.ok(framed.read(text));
  assert.equal(framed.taken(), text);
});

test('the end is the place after the last byte, whatever follows', () => {
  const { chunks, read } = reader(true);
  assert.ok(read('1\r\nx\r\n'));
  assert.equal(chunks.end, -1);
  assert.ok(read('0\r\n\r\nHTTP/1.1 200 OK\r\n'));
  assert.equal(chunks.end, 5);
});

test('chunk extensions and trailers are left out', () => {
  const { read, taken, chunks } = reader(true);
  assert.ok(read('3;a=b;c="d;e"\r\nabc\r\n0;last\r\nx-t: 1\r\nx-u:\r\n\r\n'));
  assert.equal(taken(), '3\r\nabc\r\n0\r\n\r\n');
  assert.ok(chunks.end > 0);
});

test('what is not a chunk is refused', () => {
  const faults = [
    '\r\n',
    ' 1\r\n',
    '1 \r\n',
    '-1\r\n',
    '0x1\r\n',
    'g\r\n',
    '1\n',
    '1\r\r\n',
    '1\r\nxy',
    '1\r\nx\n',
    '1\r\nx\r\r',
  ];
  for (const text of [...faults, ';a\r\n', '1234567890123\r\n', '0\r\n\n', '0\r\n\r\r', '0\r\nx: y\n']) {
    for (const keepsFraming of [true, false]) {
      const { chunks, read } = reader(keepsFraming);
      assert.ok(!read(text), JSON.stringify(text));
      assert.notEqual(chunks.refusal, '');
    }
  }
});

test('extensions and trailers that llhttp would refuse are refused', () => {
  for (const extension of [';', '; a', ';a=\x01', ';a\0', ';a="b', ';a="b"c', ';a=b=c', ';a ', ' ;a']) {
    assert.ok(!reader(false).read(`1${extension}\r\nx\r\n0\r\n\r\n`), JSON.stringify(extension));
  }
  for (const trailer of ['x', 'x : y', ' x: y', ': y', 'x: \0', 'x: a\rb', 'transfer-encoding: chunked']) {
    assert.ok(!reader(false).read(`0\r\n${trailer}\r\n\r\n`), JSON.stringify(trailer));
  }
});

test('extensions and trailers without end are refused', () => {
  const half = 'e'.repeat(MAX_IGNORED_BYTES / 2 + 1);
  assert.ok(!reader(false).read(`1;${half}\r\nx\r\n1;${half}\r\nx\r\n`));
  assert.ok(!reader(false).read(`0\r\nx: ${half}\r\nx: ${half}\r\n`));
  // Short lines add up too.
  assert.ok(!reader(false).read(`0\r\n${'a:\r\n'.repeat(MAX_IGNORED_BYTES)}`));
  assert.ok(!reader(false).read(`0\r\n${'a\r\n'.repeat(MAX_IGNORED_BYTES * 2)}`));
});

test('a chunk may be put in between two chunks, and nowhere else', () => {
  const { chunks, read } = reader(true);
  let places = '';
  for (const byte of '2\r\nab\r\n1\r\nc\r\n') {
    places += chunks.isBetweenChunks ? '^' : '.';
    assert.ok(read(byte));
  }
  assert.equal(places, '^......^.....');
  assert.ok(chunks.isBetweenChunks);
  assert.ok(read('0\r\n\r\n'));
  assert.ok(!chunks.isBetweenChunks);
});

test('a chunk that was refused leaves no place to put another in', () => {
  const { chunks, read } = reader(true);
  assert.ok(read('5;a=b\r\nab'));
  assert.ok(!read('cde\rX'));
  assert.ok(!chunks.isBetweenChunks);
});

test('what came before a fault has been handed on', () => {
  const { read, taken, chunks } = reader(true);
  assert.ok(!read('3\r\nabc\r\nZZ\r\n'));
  assert.equal(taken(), '3\r\nabc\r\n');
  assert.ok(chunks.isBetweenChunks);
});

test('the payload is between events at its start and after every empty line', () => {
  const { chunks, read } = reader(true);
  const send = (payload: string): boolean => {
    assert.ok(read(`${payload.length.toString(16)}\r\n${payload}\r\n`));
    return chunks.isBetweenEvents;
  };
  assert.ok(chunks.isBetweenEvents);
  assert.ok(!send('data: a'));
  assert.ok(!send('\n'));
  assert.ok(send('\n'));
  assert.ok(!send('data: b\r\n'));
  assert.ok(!send('\r'));
  assert.ok(send('\n'));
  assert.ok(!send('data: c\r'));
  assert.ok(send('\r'));
  assert.ok(send('data: d\n\ndata: e\n\n'));
  assert.ok(!send('data: f\n\ndata: g\n'));
});
