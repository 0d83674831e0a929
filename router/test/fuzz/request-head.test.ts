import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BAD, INCOMPLETE } from '../../src/wire/fields.ts';
import { RequestHead } from '../../src/wire/request-head.ts';
import { Chance, Failures, caseCount } from './chance.ts';
import { readRequests } from './llhttp.ts';
import { randomRequestHead } from './random-heads.ts';

/** Everything the router goes by once it has read a head. */
function factsOf(head: RequestHead, next: number): Record<string, unknown> {
  if (next === INCOMPLETE) return { next };
  if (next === BAD) return { next, status: head.refusal?.status };
  const { method, target, contentLength, isChunked, isHttp10, isLast, expectsContinue, requestId, raw } = head;
  const passedOn = head.passedOn();
  return {
    next,
    method,
    target,
    contentLength,
    isChunked,
    isHttp10,
    isLast,
    expectsContinue,
    requestId,
    raw,
    passedOn,
  };
}

/** Reads the head as a connection does whose bytes come in parts: again from the start, on all that is here. */
function readInParts(bytes: Buffer, start: number, cuts: readonly number[], copies: boolean): Record<string, unknown> {
  for (const cut of [...cuts, bytes.length]) {
    if (cut < start) continue;
    const head = new RequestHead();
    // Without the copy there are bytes after the end, which must not matter.
    const next = head.read(copies ? Buffer.from(bytes.subarray(0, cut)) : bytes, start, cut);
    if (next !== INCOMPLETE) return factsOf(head, next);
  }
  return { next: INCOMPLETE };
}

const HOP_FIELDS = new Set(
  'host connection expect upgrade te trailer keep-alive proxy-connection transfer-encoding'.split(' '),
);

/** What is left of llhttp's fields when those that end at this hop are taken out. */
function passedOnFields(fields: readonly string[]): string[] {
  const named = new Set<string>();
  for (let i = 0; i < fields.length; i += 2) {
    if (fields[i]!.toLowerCase() !== 'connection') continue;
    for (const name of fields[i + 1]!.split(',')) named.add(name.replaceAll(/^[ \t]+|[ \t]+$/g, '').toLowerCase());
  }
  const lines: string[] = [];
  for (let i = 0; i < fields.length; i += 2) {
    const name = fields[i]!.toLowerCase();
    // llhttp leaves in some of the tabs around a value.
    const value = fields[i + 1]!.replaceAll(/^[ \t]+|[ \t]+$/g, '');
    if (!HOP_FIELDS.has(name) && !named.has(name)) lines.push(`${fields[i]}:${value}`);
  }
  return lines;
}

/** The target that llhttp's URL stands for: absolute-form loses its authority (RFC 9112 section 3.2.2). */
function targetOf(url: string, method: string): string {
  if (!/^http/i.test(url)) return url;
  const rest = url.replace(/^https?:\/\/[^/?]*/i, '');
  if (rest === '' && method === 'OPTIONS') return '*';
  return rest.startsWith('/') ? rest : `/${rest}`;
}

const NEXT = 'GET /next HTTP/1.1\r\nhost: next\r\n\r\n';

/** llhttp must take the head that we took, and find the end of its message where we find it. */
function checkAgainstLlhttp(text: string, head: RequestHead): void {
  const { contentLength } = head;
  const isHuge = contentLength > 1_000;
  const payload = isHuge ? 'x'.repeat(100) : head.isChunked ? 'abc' : 'x'.repeat(Math.max(0, contentLength));
  const body = head.isChunked ? '3\r\nabc\r\n0\r\n\r\n' : payload;
  const { messages, error } = readRequests(Buffer.from(text + body + (isHuge ? '' : NEXT), 'latin1'));
  const [first, second] = messages;
  assert.ok(first?.areFieldsComplete, `llhttp refuses: ${error}`);
  assert.equal(head.method, first.method);
  assert.equal(head.target, targetOf(first.url, first.method));
  assert.equal(head.isHttp10, first.minor === 0);
  assert.deepEqual(
    head.pairs().map(([name, value]) => `${name}:${value}`),
    passedOnFields(first.fields),
  );
  assert.equal(first.body, payload, `llhttp reads another body: ${error}`);
  assert.equal(first.isComplete, !isHuge, `llhttp ends the message elsewhere: ${error}`);
  if (isHuge) return;
  // After the last message of a connection, and after a change of protocol, llhttp reads nothing more.
  const isAlone = error === 'HPE_CLOSED_CONNECTION' || first.fields.some((name) => /^upgrade$/i.test(name));
  if (!isAlone || second !== undefined) assert.equal(second?.url, '/next', `the next request is not found: ${error}`);
}

test('a request head gets one verdict however it is split, and never a kinder one than that of llhttp', (t) => {
  const chance = new Chance();
  const count = caseCount(1);
  t.diagnostic(`FUZZ_SEED=${chance.seed} FUZZ_HEADS=${count}`);
  const verdicts = new Map<string, number>();
  const failures = new Failures();
  for (let i = 0; i < count; i++) {
    const text = randomRequestHead(chance);
    const start = chance.pick([0, 0, 2]);
    const bytes = Buffer.from('\r\n'.slice(0, start) + text + chance.pick(['', '', NEXT, '\0\n']), 'latin1');
    const head = new RequestHead();
    const next = head.read(bytes, start, bytes.length);
    const verdict = next === INCOMPLETE ? 'incomplete' : next === BAD ? `${head.refusal!.status}` : 'accepted';
    verdicts.set(verdict, (verdicts.get(verdict) ?? 0) + 1);
    failures.try(
      () => JSON.stringify(bytes.toString('latin1').slice(0, 2_000)),
      () => {
        assert.deepEqual(readInParts(bytes, start, chance.cuts(bytes), chance.oneIn(2)), factsOf(head, next));
        if (next >= 0) checkAgainstLlhttp(bytes.toString('latin1', start, next), head);
      },
    );
  }
  failures.check();
  t.diagnostic(JSON.stringify(Object.fromEntries(verdicts)));
  // A generator whose heads all fail, or all pass, would prove nothing.
  assert.ok(verdicts.get('accepted')! > count * 0.2, 'too few heads were accepted');
  const reached = ['accepted', 'incomplete', '400', '414', '417', '431', '501', '505'];
  if (count >= 50_000) assert.deepEqual([...verdicts.keys()].sort(), reached.sort());
});
