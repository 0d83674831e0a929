import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BAD, INCOMPLETE } from '../../src/wire/fields.ts';
import { ResponseHead } from '../../src/wire/response-head.ts';
import { Chance, Failures, caseCount } from './chance.ts';
import { readResponses } from './llhttp.ts';
import { randomResponseHead } from './random-heads.ts';

function factsOf(head: ResponseHead, next: number): Record<string, unknown> {
  if (next < 0) return { next };
  const { status, statusText, contentLength, isChunked, isLast, isEventStream, requestId, raw } = head;
  return {
    next,
    status,
    statusText,
    contentLength,
    isChunked,
    isLast,
    isEventStream,
    requestId,
    raw,
    out: head.passedOn(),
  };
}

function readInParts(bytes: Buffer, cuts: readonly number[], copies: boolean): Record<string, unknown> {
  for (const cut of [...cuts, bytes.length]) {
    const head = new ResponseHead();
    const next = head.read(copies ? Buffer.from(bytes.subarray(0, cut)) : bytes, 0, cut);
    if (next !== INCOMPLETE) return factsOf(head, next);
  }
  return { next: INCOMPLETE };
}

const NEXT = 'HTTP/1.1 299 Next\r\ncontent-length: 0\r\n\r\n';

/** llhttp must take the head that we took, and find the end of its message where we find it. */
function checkAgainstLlhttp(text: string, head: ResponseHead): void {
  const { contentLength, isChunked } = head;
  const isBodiless = head.hasNoBody('GET');
  const isUntilClose = !isBodiless && !isChunked && contentLength < 0;
  const isHuge = contentLength > 1_000;
  const filler = isHuge || isUntilClose ? 100 : Math.max(0, contentLength);
  const payload = isBodiless ? '' : isChunked ? 'abc' : 'x'.repeat(filler);
  const body = !isBodiless && isChunked ? '3\r\nabc\r\n0\r\n\r\n' : payload;
  const isLast = isUntilClose || (isHuge && !isBodiless);
  const { messages, error } = readResponses(Buffer.from(text + body + (isLast ? '' : NEXT), 'latin1'));
  const [first, second] = messages;
  assert.ok(first?.areFieldsComplete, `llhttp refuses: ${error}`);
  assert.equal(head.status, first.status);
  assert.equal(first.body, payload, `llhttp reads another body: ${error}`);
  assert.equal(first.isComplete, !isLast, `llhttp ends the message elsewhere: ${error}`);
  // After 101 another protocol is spoken (RFC 9110, section 15.2.2): llhttp reads nothing more.
  if (!isLast && error !== 'HPE_CLOSED_CONNECTION' && head.status !== 101)
    assert.equal(second?.status, 299, `no second answer: ${error}`);
}

test('a response head gets one verdict however it is split, and never a kinder one than that of llhttp', (t) => {
  const chance = new Chance();
  const count = caseCount(0.5);
  t.diagnostic(`FUZZ_SEED=${chance.seed}, ${count} heads`);
  const failures = new Failures();
  let accepted = 0;
  for (let i = 0; i < count; i++) {
    const text = randomResponseHead(chance);
    const bytes = Buffer.from(text + chance.pick(['', '', NEXT, '\0\n']), 'latin1');
    const head = new ResponseHead();
    const next = head.read(bytes, 0, bytes.length);
    if (next !== INCOMPLETE && next !== BAD) accepted++;
    failures.try(
      () => JSON.stringify(bytes.toString('latin1').slice(0, 2_000)),
      () => {
        assert.deepEqual(readInParts(bytes, chance.cuts(bytes), chance.oneIn(2)), factsOf(head, next));
        if (next >= 0) checkAgainstLlhttp(bytes.toString('latin1', 0, next), head);
      },
    );
  }
  failures.check();
  assert.ok(accepted > count * 0.2 && accepted < count * 0.8, `${accepted} of ${count} heads were accepted`);
});
