import { deepEqual, equal, match, ok } from 'node:assert/strict';
import { test } from 'node:test';
import { readBody, requestBody } from './long/content.ts';
import { lastHalf, percentile, slopePerMinute } from './long/figures.ts';
import { type ClientEnd, type Execution, Journal, type RequestRecord, type Rules, judge } from './long/journal.ts';
import { type RouterState, judgeLeaks } from './long/leaks.ts';
import { type Arrival, judgeOverload } from './long/overload-phase.ts';
import { judgeWatch } from './long/watch.ts';

// The checks of `npm test -- suite:chaos`, each against what it must not miss and what it must let pass.

const RULES: Rules = { maxExecutions: 4, retryStatuses: [503], timeoutMs: 10_000 };
const ANSWER = 'data: {"id":1}\n\ndata: [DONE]\n\n';

const execution = (changes: Partial<Execution> = {}): Execution => ({
  id: 1,
  engine: 'e1',
  fault: 'none',
  isLateRead: false,
  startMs: 0,
  endMs: 10,
  end: 'whole',
  isRequestRead: true,
  status: 200,
  payload: ANSWER,
  isHeadSent: true,
  isStalled: false,
  isDoubtful: false,
  isMalformed: false,
  ...changes,
});
const whole = (changes: object = {}): ClientEnd => ({
  kind: 'whole',
  status: 200,
  payload: ANSWER,
  error: '',
  ...changes,
});
const cut = (payload: string, bytes = 100): ClientEnd => ({ kind: 'cut', bytes, payload });
const record = (end: ClientEnd, ...executions: Execution[]): RequestRecord => ({
  id: 1,
  startMs: 0,
  endMs: 100,
  executions,
  end,
});
const verdict = (end: ClientEnd, ...executions: Execution[]): string =>
  judge(record(end, ...executions), RULES).join('; ');

/** Died before a byte of its answer. */
const died = (startMs: number): Execution =>
  execution({ startMs, endMs: startMs + 5, end: 'cut', isHeadSent: false, status: 0, payload: '' });
const unavailable = (startMs: number): Execution =>
  execution({ startMs, endMs: startMs + 5, status: 503, payload: 'no' });

test('what may happen to a request', () => {
  const fine: [ClientEnd, ...Execution[]][] = [
    [whole(), execution()],
    [whole(), died(0), execution({ startMs: 10, endMs: 20 })],
    [whole(), unavailable(0), unavailable(10), execution({ startMs: 20, endMs: 30 })],
    [whole({ status: 503, payload: 'no' }), unavailable(0)],
    [whole({ status: 502, payload: '{}', error: 'upstream_reset' }), died(0), died(10)],
    [whole(), ...[0, 10, 20].map(unavailable), died(30), execution({ startMs: 50 })],
    [cut(ANSWER.slice(0, 15)), execution({ end: 'cut' })],
    [cut(`${ANSWER.slice(0, 16)}data: {"error":{}}\n\n`), execution({ end: 'cut' })],
    [cut(ANSWER.slice(0, 15)), execution({ end: 'gone', isStalled: true })],
    [{ kind: 'left' }, execution({ end: 'gone' })],
  ];
  for (const [end, ...executions] of fine) equal(verdict(end, ...executions), '');
});

test('lost: no answer, no end, a cut that no engine made, an answer thrown away', () => {
  match(verdict({ kind: 'nothing' }, execution()), /lost: the client got neither/);
  match(verdict(cut('', 0), execution()), /lost: the connection was closed without an answer/);
  match(verdict(cut(ANSWER.slice(0, 15)), execution()), /lost: cut, although its engine sent all/);
  match(
    verdict(cut(ANSWER.slice(0, 15)), execution({ end: 'gone' })),
    /lost: cut, although its engine did not break off/,
  );
  match(verdict(whole({ status: 502, error: 'upstream_reset' }), execution()), /lost: an engine answered 200/);
});

test("wrong: another's bytes, a truncated answer that looks complete", () => {
  match(verdict(whole({ payload: ANSWER.replace('1', '2') }), execution()), /wrong: not its own answer/);
  match(verdict(whole({ payload: ANSWER.slice(0, 15) }), execution()), /wrong: a truncated answer looks complete/);
  match(verdict(whole(), execution({ end: 'cut' })), /wrong: a cut answer looks complete/);
  match(verdict(cut('data: {"id":2}'), execution({ end: 'cut' })), /wrong: what came before the cut/);
  match(verdict(whole()), /wrong: an answer that no engine gave/);
  match(verdict(whole({ status: 200, error: 'overloaded' }), execution()), /wrong: an error with status 200/);
});

test('duplicated: twice at once, without a reason, too often, too late', () => {
  match(verdict(whole(), died(0), execution({ startMs: 2 })), /duplicated: executed twice at once/);
  match(
    verdict(whole(), execution(), execution({ startMs: 20 })),
    /duplicated: executed again after .*"whole", status 200/,
  );
  match(
    verdict(whole(), execution({ end: 'gone' }), execution({ startMs: 20 })),
    /duplicated: executed again after .*"gone"/,
  );
  match(
    verdict(whole(), died(0), died(10), execution({ startMs: 20 })),
    /duplicated: sent to more than one other engine/,
  );
  const five = [0, 10, 20, 30].map(unavailable);
  match(verdict(whole(), ...five, execution({ startMs: 50 })), /duplicated: executed 5 times/);
  const six = [...[0, 10, 20, 30].map(unavailable), died(40)];
  match(verdict(whole(), ...six, execution({ startMs: 60 })), /duplicated: executed 6 times/);
  match(verdict(whole(), execution({ startMs: 5_000 })), /duplicated: reached an engine after its end/);
});

test('the journal: a second end, an execution after the verdict, one that never ends', () => {
  const journal = new Journal(RULES);
  const from = { engine: 'e1', fault: 'none', isLateRead: false };
  const one = journal.begin(0);
  const work = journal.execute({ id: one.id, startMs: 1, ...from });
  journal.end(one, { kind: 'left' }, 10);
  journal.sweep(5_000, false);
  equal(journal.openCount, 1, 'its engine still works');
  journal.end(one, whole(), 11);
  match(journal.complaints.pop()!, /duplicated: the client got two ends/);
  journal.sweep(60_000, false);
  equal(journal.openCount, 0);
  match(journal.complaints.pop()!, /leaked: e1 still works for it/);
  equal(work.end, 'running');
  journal.execute({ id: one.id, startMs: 60_001, ...from });
  match(journal.complaints.pop()!, /duplicated: reached an engine after its end/);
  deepEqual(journal.complaints, []);
});

test('a body is only what a client sends', () => {
  const asked = { id: 7, session: 's1', size: 50, stream: true };
  const text = requestBody(asked);
  deepEqual(readBody(text), asked);
  for (const changed of [text.slice(0, -1), text.replace('s1;', 's2;'), `${text} `, text.replace('50', '51')]) {
    equal(readBody(changed), null);
  }
});

const line = (perMinute: number): { atMs: number; value: number }[] =>
  Array.from({ length: 61 }, (_, n) => ({ atMs: n * 5_000, value: 50e6 + (n / 12) * perMinute + (n % 2) * 1e6 }));

test('slopes and percentiles', () => {
  ok(Math.abs(slopePerMinute(line(2e6)) - 2e6) < 1e5);
  ok(Math.abs(slopePerMinute(lastHalf(line(2e6))) - 2e6) < 2e5);
  equal(percentile([5, 1, 4, 2, 3], 0.99), 5);
});

test('memory that grows, files that stay open, a loop that is late', () => {
  const calm = { p99Ms: 3, maxMs: 20 };
  const limits = { usedMbPerMinute: 1, rssMbPerMinute: 1, loopP99Ms: 20 };
  const flat = { used: line(0), rss: line(0), files: line(0), router: calm, idle: calm };
  deepEqual(judgeWatch(flat, limits).complaints, []);
  match(judgeWatch({ ...flat, used: line(1.5e6) }, limits).complaints.join(), /memory grows: heapUsed/);
  match(judgeWatch({ ...flat, rss: line(1.5e6) }, limits).complaints.join(), /memory grows: resident/);
  const files = Array.from({ length: 61 }, (_, n) => ({ atMs: n * 5_000, value: 200 + n * 3 }));
  match(judgeWatch({ ...flat, files }, limits).complaints.join(), /leaked: open files grow/);
  match(judgeWatch({ ...flat, router: { p99Ms: 24, maxMs: 30 } }, limits).complaints.join(), /the loop is late/);
});

test('one socket, one timer, one count, one file left over', () => {
  const loop = { p50Ms: 0, p99Ms: 0, maxMs: 0 };
  const rest: RouterState = {
    usedBytes: 0,
    rssBytes: 0,
    openFiles: 20,
    resources: { TCPServerWrap: 2, Timeout: 1 },
    loop,
    exchanges: 0,
    inFlight: 0,
    sockets: [],
  };
  const metrics =
    'turnout_requests_in_flight 0\nturnout_worker_in_flight{worker="a"} 0\nturnout_retry_buffer_bytes 0\n';
  deepEqual(judgeLeaks(rest, rest, metrics), []);
  match(judgeLeaks(rest, { ...rest, resources: { TCPSocketWrap: 1 } }, metrics).join(), /leaked: TCPSocketWrap: 1, 0/);
  match(judgeLeaks(rest, { ...rest, resources: { Timeout: 2 } }, metrics).join(), /leaked: Timeout: 2, 1/);
  match(judgeLeaks(rest, { ...rest, openFiles: 21 }, metrics).join(), /leaked: 21 open files/);
  match(judgeLeaks(rest, { ...rest, exchanges: 1 }, metrics).join(), /leaked: 1 exchanges/);
  match(judgeLeaks(rest, { ...rest, inFlight: 1 }, metrics).join(), /leaked: 1 requests counted in flight/);
  match(
    judgeLeaks(rest, rest, metrics.replace('"a"} 0', '"a"} 1')).join(),
    /leaked: turnout_worker_in_flight\{worker="a"\} is 1/,
  );
  match(
    judgeLeaks(rest, rest, metrics.replace('bytes 0', 'bytes 9')).join(),
    /leaked: turnout_retry_buffer_bytes is 9/,
  );
});

test('overload: slow for those taken, slow to refuse, not well again', () => {
  const many = (count: number, ms: number, status: number, atMs = 5_000): Arrival[] =>
    Array.from({ length: count }, () => ({ atMs, ms, status }));
  const good = {
    base: many(100, 200, 200),
    overload: [...many(100, 350, 200), ...many(400, 2, 429)],
    after: many(100, 200, 200),
    usedBytes: { before: 40e6, most: 60e6 },
  };
  const complaintsOf = (changes: object): string => judgeOverload({ ...good, ...changes }).complaints.join();
  equal(complaintsOf({}), '');
  match(complaintsOf({ overload: [...many(100, 450, 200), ...many(400, 2, 429)] }), /accepted p95 450 ms/);
  match(complaintsOf({ overload: [...many(100, 350, 200), ...many(400, 80, 429)] }), /429 p99 after 80/);
  match(complaintsOf({ overload: many(500, 350, 200) }), /this was no overload/);
  match(complaintsOf({ after: [...many(90, 200, 200), ...many(10, 2, 429)] }), /10 refused later than/);
  match(complaintsOf({ after: many(100, 300, 200) }), /p95 300 ms after it/);
  match(complaintsOf({ usedBytes: { before: 40e6, most: 140e6 } }), /memory grows by 100/);
  match(complaintsOf({ base: many(100, 200, 0) }), /ended otherwise/);
});
