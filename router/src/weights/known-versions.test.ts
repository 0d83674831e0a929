import type { VersionSpan } from '../generation/delta.ts';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type AskedVersion, completed, coveringSpans, placedSeams } from './version-spans.ts';
import { knownSpans } from './known-versions.ts';

const sse = (...events: object[]): string => events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('');
/** An event with the ids of new tokens, as vLLM has it. */
const ids = (count: number, index = 0): object => ({ choices: [{ index, token_ids: Array<number>(count).fill(7) }] });
/** An event with the count so far, as SGLang's chats have it. */
const counted = (count: number): object => ({
  choices: [{ index: 0, delta: { content: 'x' } }],
  usage: { completion_tokens: count },
});
const sampled = (length: number, index = 0) => ({ index, ids: new Int32Array(length) });
const shown = (spans: VersionSpan[]): string[] => spans.map(({ version, from, to }) => `${version} ${from}-${to}`);

test('weights that stayed are those of all tokens, of a stream or not', () => {
  const changes = [{ at: 0, until: 0, version: 'v1', name: 'v1' }];
  for (const isStream of [true, false]) {
    assert.deepEqual(shown(knownSpans(sampled(5), isStream, Buffer.alloc(0), changes)), ['v1 0-5']);
  }
  assert.deepEqual(knownSpans(sampled(5), true, Buffer.alloc(0), []), [], 'the router swaps none');
});

test('a stream is divided where its weights changed', () => {
  for (const [first, second] of [
    [sse(ids(1), ids(2)), sse(ids(1), ids(1))],
    [
      sse({ choices: [{ index: 0, delta: { role: 'assistant' } }] }, counted(1), counted(3)),
      sse(counted(4), counted(5)),
    ],
  ] as const) {
    const bytes = Buffer.from(first + second);
    const spans = (at: number, until = at): string[] =>
      shown(
        knownSpans(sampled(5), true, bytes, [
          { at: 0, until: 0, version: 'v1', name: 'v1' },
          { at, until, version: 'v2', name: 'v2' },
        ]),
      );
    assert.deepEqual(spans(first.length), ['v1 0-3', 'null 3-4', 'v2 4-5'], 'the next event is of either');
    assert.deepEqual(spans(first.length, bytes.length), ['v1 0-3', 'null 3-5'], 'so is all that came at once');
    assert.deepEqual(spans(first.length, Infinity), ['v1 0-3', 'null 3-5']);
    assert.deepEqual(spans(first.length - 5), ['v1 0-3', 'null 3-4', 'v2 4-5'], 'the event had begun');
    assert.deepEqual(spans(first.length + 1), ['v1 0-4', 'null 4-5'], 'so had the next one');
    assert.deepEqual(spans(0), ['null 0-1', 'v2 1-5']);
    assert.deepEqual(spans(bytes.length), ['v1 0-5']);
  }
});

test('choices are divided each at its own place; lines may end in CRLF', () => {
  const first = sse(ids(1, 0), ids(2, 1), ids(1, 0)).replaceAll('\n', '\r\n');
  const bytes = Buffer.from(first + sse(ids(1, 1), ids(1, 0), ids(2, 0)));
  const changes = [
    { at: 0, until: 0, version: 'v1', name: 'v1' },
    { at: first.length, until: first.length, version: 'v2', name: 'v2' },
  ];
  assert.deepEqual(shown(knownSpans(sampled(5, 0), true, bytes, changes)), ['v1 0-2', 'null 2-3', 'v2 3-5']);
  assert.deepEqual(shown(knownSpans(sampled(3, 1), true, bytes, changes)), ['v1 0-2', 'null 2-3']);
});

test('tokens without text are of either weights where their event came after the change; those of a choice that had ended are not', () => {
  const finish = { choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] };
  const first = sse(counted(2));
  const bytes = Buffer.from(first + sse(counted(4), counted(5), finish));
  const spans = (at: number, length: number, came = bytes.length): string[] =>
    shown(
      knownSpans(sampled(length), true, bytes.subarray(0, came), [
        { at: 0, until: 0, version: 'v1', name: 'v1' },
        { at, until: at, version: 'v2', name: 'v2' },
      ]),
    );
  assert.deepEqual(spans(first.length, 6), ['v1 0-2', 'null 2-4', 'v2 4-6']);
  assert.deepEqual(spans(first.length, 3, first.length), ['v1 0-2', 'null 2-3'], 'its end did not come');
  assert.deepEqual(spans(bytes.length - 100, 6), ['v1 0-5', 'null 5-6'], 'a stop token');
  assert.deepEqual(spans(bytes.length, 6), ['v1 0-6'], 'it came with the end');
});

test('a change after another one, of which nothing had come, is known from its own place on', () => {
  const first = sse(ids(2));
  const bytes = Buffer.from(first + sse(ids(1), ids(1)));
  const at = first.length;
  const changes = [
    { at: 0, until: 0, version: 'v1', name: 'v1' },
    { at, until: at, version: 'v2', name: 'v2' },
    { at, until: at, version: 'v3', name: 'v3' },
  ];
  assert.deepEqual(shown(knownSpans(sampled(4), true, bytes, changes)), ['v1 0-2', 'null 2-3', 'v3 3-4']);
});

test('where the change is in an event that is not complete, all complete ones came before', () => {
  const whole = sse(ids(2));
  const bytes = Buffer.from(`${whole}data: {"choi`);
  for (const at of [whole.length + 3, bytes.length, bytes.length + 20]) {
    const changes = [
      { at: 0, until: 0, version: 'v1', name: 'v1' },
      { at, until: at, version: 'v2', name: 'v2' },
    ];
    assert.deepEqual(shown(knownSpans(sampled(2), true, bytes, changes)), ['v1 0-2'], String(at));
  }
});

test('where token counts are missing, and in a whole response, versions after the change are not known', () => {
  const changes = [
    { at: 0, until: 0, version: 'v1', name: 'v1' },
    { at: 60, until: 60, version: 'v2', name: 'v2' },
  ];
  const text = Buffer.from(sse({ choices: [{ index: 0, text: 'x'.repeat(60) }] }));
  assert.deepEqual(knownSpans(sampled(3), true, text, changes), []);
  assert.deepEqual(knownSpans(sampled(3), false, text, changes), []);
  const generated = Buffer.from(
    sse({ output_ids: [1, 2, 3], meta_info: { completion_tokens: 3, weight_version: 'v1' } }),
  );
  assert.deepEqual(knownSpans(sampled(3), true, generated, changes), [], 'of another API');
});

test("spans of a turn are the engine's own; what the router knows counts when the engine has confirmed it", () => {
  const changes = [
    { at: 0, until: 0, version: 'base', name: 'default' },
    { at: 9, until: 9, version: 'v2', name: 'v2' },
  ];
  const asked: AskedVersion = { before: 'x', isProof: false, stale: null, ticket: 1, changes };
  const known = [
    { version: 'base', from: 0, to: 3 },
    { version: null, from: 3, to: 4 },
    { version: 'v2', from: 4, to: 6 },
  ];
  const ids = new Int32Array(6);
  const learned = { ticket: 1, version: null, isExpected: true, after: 'v2' };
  const shown = (spans: readonly VersionSpan[]): string[] =>
    spans.map(({ version, from, to, after = '' }) => `${version} ${from}-${to} ${after}`.trim());
  const spans = (named: VersionSpan[], endVersion: string | null = null): VersionSpan[] =>
    coveringSpans({ spans: named, known, endVersion, ids }, 10, asked);
  const unnamed = spans([]);
  assert.deepEqual(shown(unnamed), ['null 10-13', 'null 13-14', 'null 14-16']);
  assert.deepEqual(shown(completed(unnamed, learned)), ['base 10-13', 'null 13-14 v2', 'v2 14-16']);
  const isExpected = false;
  assert.deepEqual(shown(completed(unnamed, { ...learned, isExpected, after: 'v1' })), [
    'null 10-13 v1',
    'null 13-14 v1',
    'null 14-16 v1',
  ]);
  assert.deepEqual(
    shown(
      spans([
        { version: 'default', from: 0, to: 2 },
        { version: 'v2', from: 2, to: 6 },
      ]),
    ),
    ['base 10-12', 'v2 12-16'],
  );
  const wrong = spans([{ version: 'v1', from: 4, to: 6 }]);
  assert.deepEqual(shown(completed(wrong, learned)), ['base 10-13', 'null 13-14 v2', 'null 14-16 v1']);
  assert.deepEqual(shown(spans([], 'v1')).join(), 'null 10-13 v1,null 13-14 v1,null 14-16 v1', 'named at the end');
});

test('a name at the end of an answer confirms weights that stayed, and refutes others', () => {
  const changes = [{ at: 0, until: 0, version: 'v2', name: 'v2' }];
  const asked: AskedVersion = { before: 'v2', isProof: true, stale: null, ticket: null, changes };
  const spans = (endVersion: string, changed = changes): (string | null)[] => {
    const known = [{ version: 'v2', from: 0, to: 2 }];
    const sampled = { spans: [], known, endVersion, ids: new Int32Array(2) };
    return coveringSpans(sampled, 0, { ...asked, changes: changed }).map(({ version }) => version);
  };
  assert.deepEqual(spans('v2'), ['v2']);
  assert.deepEqual(spans('default'), [null]);
  assert.deepEqual(spans('v2', [{ at: 0, until: 0, version: 'v1', name: 'v1' }, ...changes]), [null]);
});

test('where another engine continues, each names its own weights', () => {
  const seam = { at: 3, worker: 'a', version: 'base', cause: 'cut' as const };
  const changes = [{ at: 0, until: 0, version: 'v1', name: 'v1' }];
  const before = { before: null, stale: null, changes: [{ at: 0, until: 0, version: 'base', name: 'default' }] };
  const asked: AskedVersion = {
    before: null,
    isProof: false,
    stale: null,
    ticket: null,
    changes,
    seams: [seam],
    earlier: [before],
  };
  const spans = (...names: string[]): (string | null)[] => {
    const named = names.map((version, i) => ({ version, from: 3 * i, to: 3 * i + 3 }));
    return coveringSpans({ spans: named, endVersion: null, ids: new Int32Array(6) }, 0, asked).map(
      ({ version }) => version,
    );
  };
  assert.deepEqual(spans('default', 'v1'), ['base', 'v1']);
  assert.deepEqual(spans('v1', 'default'), [null, null]);
});

test('what is learned after an answer is about the engine that ended it, not about those before', () => {
  const spans = (length: number, seams: readonly number[], engines: readonly (string | null)[]): string[] => {
    const [last, ...others] = engines.toReversed();
    const facts = { isProof: true, stale: null, ticket: 1, changes: [] };
    const asked: AskedVersion = {
      ...facts,
      before: last!,
      seams: seams.map((at) => ({ at, worker: 'a', version: null, cause: 'cut' as const })),
      earlier: others.toReversed().map((before) => ({ before, stale: null, changes: [] })),
    };
    const unnamed = coveringSpans({ spans: [], endVersion: null, ids: new Int32Array(length) }, 3, asked);
    const learned = { ticket: 1, version: 'v2', isExpected: false, after: 'v2' };
    return completed(unnamed, learned, placedSeams(3, asked).seams).map(
      ({ version, from, to, before, after }) => `${version} ${from}-${to} ${before} ${after}`,
    );
  };
  assert.deepEqual(spans(20, [6], ['v1', 'v2']), ['null 3-9 v1 undefined', 'v2 9-23 undefined undefined']);
  assert.deepEqual(spans(9, [3, 6], [null, 'v1', 'v2']), [
    'null 3-6 undefined undefined',
    'null 6-9 v1 undefined',
    'v2 9-12 undefined undefined',
  ]);
  assert.deepEqual(spans(6, [6], ['v1', 'v2']), ['null 3-9 v1 undefined'], 'the last engine gave no token');
});

test('the name at the end of an answer is of the engine that ended it', () => {
  const seams = [{ at: 2, worker: 'a', version: null, cause: 'cut' as const }];
  const own = { before: 'v2', stale: null, changes: [] };
  const asked: AskedVersion = { ...own, isProof: true, ticket: null, seams, earlier: [{ ...own, before: 'v1' }] };
  assert.deepEqual(coveringSpans({ spans: [], endVersion: 'v2', ids: new Int32Array(4) }, 0, asked), [
    { version: null, from: 0, to: 2, before: 'v1' },
    { version: 'v2', from: 2, to: 4 },
  ]);
});

test('a name that an engine kept over an update proves nothing, also where another engine continued', () => {
  const own = { before: '7', stale: '7', changes: [] };
  const seams = [{ at: 2, worker: 'a', version: null, cause: 'cut' as const }];
  const asked: AskedVersion = { ...own, stale: null, isProof: true, ticket: null, seams, earlier: [own] };
  const named = [{ version: '7', from: 0, to: 4 }];
  assert.deepEqual(coveringSpans({ spans: named, endVersion: null, ids: new Int32Array(4) }, 0, asked), [
    { version: null, from: 0, to: 2, before: '7' },
    { version: '7', from: 2, to: 4 },
  ]);
});
