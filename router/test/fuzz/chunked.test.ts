import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ChunkedReader } from '../../src/wire/chunked.ts';
import { Chance, Failures, caseCount } from './chance.ts';
import { readRequests } from './llhttp.ts';

/** What a chunked body comes to: `end` -1 while it is not whole. `framed`: all but chunk extensions and trailers. */
interface Outcome {
  end: number;
  isRefused: boolean;
  payload: string;
  framed: string;
}

const TOKEN = "[\\w!#$%&'*+.^`|~-]+";
const VALUE = '[\\t -~\\x80-\\xff]';
const EXTENSION = `;${TOKEN}(?:=(?:${TOKEN}|"(?:(?!["\\\\])${VALUE}|\\\\${VALUE})*"))?`;
const SIZE_LINE = new RegExp(`^([\\da-f]{1,12})((?:${EXTENSION})*)\\r\\n`, 'i');
const TRAILER = new RegExp(`^(?!content-length:|transfer-encoding:)${TOKEN}:${VALUE}*\\r\\n`, 'i');

/** RFC 9112 section 7.1 word by word, on the whole text. */
function naiveRead(text: string): Outcome {
  let rest = text;
  let payload = '';
  let framed = '';
  const outcome = (isWhole: boolean): Outcome => ({
    end: isWhole ? text.length - rest.length : -1,
    // Every line that is whole was looked at, so what is left is wrong or has no line end yet.
    isRefused: !isWhole && !/^[^\r\n]*\r?$/.test(rest),
    payload,
    framed,
  });
  for (;;) {
    const line = SIZE_LINE.exec(rest);
    if (line === null) return outcome(false);
    rest = rest.slice(line[0].length);
    framed += `${line[1]}\r\n`;
    const size = Number.parseInt(line[1]!, 16);
    if (size === 0) break;
    const data = rest.slice(0, size);
    payload += data;
    rest = rest.slice(size);
    if (!rest.startsWith('\r\n')) return { ...outcome(false), isRefused: rest !== '' && rest !== '\r' };
    rest = rest.slice(2);
    framed += `${data}\r\n`;
  }
  for (let line = TRAILER.exec(rest); line !== null; line = TRAILER.exec(rest)) rest = rest.slice(line[0].length);
  if (!rest.startsWith('\r\n')) return outcome(false);
  rest = rest.slice(2);
  framed += '\r\n';
  return outcome(true);
}

function readInParts(bytes: Buffer, cuts: readonly number[], keepsFraming: boolean): Outcome {
  let taken = '';
  const reader = new ChunkedReader(keepsFraming, (part, from, to) => {
    assert.ok(to > from, 'an empty part was handed on');
    taken += Buffer.from(part).toString('latin1', from, to);
  });
  const outcome = (end: number): Outcome => {
    if (!keepsFraming) assert.equal(reader.payloadBytes, taken.length);
    return { end, isRefused: reader.refusal !== '', payload: taken, framed: taken };
  };
  let at = 0;
  for (const cut of [...cuts, bytes.length]) {
    // Each part in a buffer of its own, with something else before and after it.
    const part = Buffer.concat([Buffer.from('7\r\n'), bytes.subarray(at, cut), Buffer.from('\r\n9')]);
    const isFine = reader.read(part, 3, part.length - 3);
    assert.equal(isFine, reader.refusal === '');
    if (!isFine) return outcome(-1);
    if (reader.end >= 0) return outcome(at + reader.end - 3);
    at = cut;
  }
  return outcome(-1);
}

const PAYLOADS = ['x', 'data: a\n\n', 'data: b\r\n\r\n', '\r\n', '0\r\n\r\n', 'y'.repeat(300), '\n'];
const EXTENSIONS = [
  '',
  '',
  '',
  ';a',
  ';a=b',
  ';a="b"',
  ';a=b;c',
  '; a',
  ';',
  ';\0',
  ';a=\x01',
  ';a="\n"',
  ';\r',
  ' ',
  ';é',
];
const TRAILERS = [
  'x: y\r\n',
  'content-length: 5\r\n',
  'Transfer-Encoding: gzip\r\n',
  'host: x\r\n',
  'x:\r\n',
  'x\r\n',
  'x : y\r\n',
  ' x: y\r\n',
  'x: \0\r\n',
  'x: a\rb\r\n',
  'x: a\n',
  ': y\r\n',
];

function randomBody(chance: Chance): string {
  let text = '';
  for (let left = chance.int(4); left > 0; left--) {
    const payload = chance.pick(PAYLOADS);
    const size = payload.length.toString(16);
    const zeros = chance.oneIn(20) ? '0'.repeat(chance.between(1, 12)) : '';
    text += `${zeros}${chance.oneIn(2) ? size.toUpperCase() : size}`;
    text += `${chance.oneIn(4) ? chance.pick(EXTENSIONS) : ''}\r\n${payload}\r\n`;
  }
  text += `${chance.oneIn(20) ? '000' : '0'}${chance.oneIn(6) ? chance.pick(EXTENSIONS) : ''}\r\n`;
  while (chance.oneIn(4)) text += chance.pick(TRAILERS);
  text += '\r\n';
  if (chance.oneIn(20)) return text.slice(0, chance.int(text.length));
  if (!chance.oneIn(3)) return text;
  const at = chance.int(text.length);
  const hazard = chance.pick(['', '\r', '\n', '\0', ' ', ';', '0', 'f', 'g', '-', '+', 'x', '\t', '0x', '\xff']);
  return text.slice(0, at) + hazard + text.slice(at + chance.int(3));
}

const HEAD = 'POST /first HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n';
const NEXT = 'GET /next HTTP/1.1\r\nhost: h\r\n\r\n';

test('a chunked body comes to the same however it is split, as a naive reader and llhttp have it', (t) => {
  const chance = new Chance();
  const count = caseCount(0.5);
  t.diagnostic(`FUZZ_SEED=${chance.seed}, ${count} bodies`);
  const failures = new Failures();
  const seen = { whole: 0, refused: 0, unfinished: 0 };
  for (let i = 0; i < count; i++) {
    const body = randomBody(chance);
    const bytes = Buffer.from(body + chance.pick(['', NEXT]), 'latin1');
    const text = bytes.toString('latin1');
    const naive = naiveRead(text);
    seen[naive.end >= 0 ? 'whole' : naive.isRefused ? 'refused' : 'unfinished']++;
    failures.try(
      () => JSON.stringify(text),
      () => {
        const plain = readInParts(bytes, chance.cuts(bytes), false);
        const framed = readInParts(bytes, chance.cuts(bytes), true);
        assert.equal(plain.isRefused, framed.isRefused);
        // A line may be refused before it is whole, never when it is right.
        if (naive.isRefused || naive.end >= 0) assert.equal(plain.isRefused, naive.isRefused);
        assert.equal(plain.end, naive.end);
        assert.equal(framed.end, naive.end);
        assert.equal(plain.payload, naive.payload);
        if (naive.end >= 0) assert.equal(framed.framed, naive.framed);
        else assert.ok(framed.framed.startsWith(naive.framed), 'what came before a fault was not handed on');
        if (naive.end < 0) return;
        const { messages, error } = readRequests(Buffer.from(HEAD + text.slice(0, naive.end) + NEXT, 'latin1'));
        assert.equal(error, '', 'llhttp refuses');
        assert.equal(messages[0]?.body, naive.payload);
        assert.equal(messages[1]?.url, '/next');
      },
    );
  }
  failures.check();
  t.diagnostic(JSON.stringify(seen));
  for (const seenCount of Object.values(seen)) assert.ok(seenCount > count * 0.02, JSON.stringify(seen));
});
