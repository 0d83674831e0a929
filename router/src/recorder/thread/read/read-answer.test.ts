import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AnswerTap, MAX_ANSWER_BYTES } from '../../tap/answer-tap.ts';
import { readAnswer } from './read-answer.ts';
import { dialects } from '../../../engines/dialects/dialects.ts';
import { Unreadable } from '../../../generation/delta.ts';
import type { DialectName } from '../../../generation/dialect.ts';

const triples = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, i) => [-(from + i + 1) / 8, from + i, null]);
const ids = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i);

/** An event of SGLang, `from` 0 in cumulative streams. */
const event = (from: number, to: number, more: object = {}, end = false) => ({
  text: 'x'.repeat(to - from),
  output_ids: ids(from, to),
  meta_info: {
    completion_tokens: to,
    prompt_tokens: 3,
    cached_tokens: 2,
    weight_version: 'v1',
    output_token_logprobs: triples(from, to),
    finish_reason: end ? { type: 'length' } : null,
    ...(end
      ? {
          weight_versions: [
            { version: 1, start: 0, end: 1 },
            { version: 'v1', start: 1, end: to },
          ],
        }
      : {}),
  },
  ...more,
});

const sse = (...events: (object | string)[]): Buffer =>
  Buffer.from(events.map((one) => `data: ${typeof one === 'string' ? one : JSON.stringify(one)}\n\n`).join(''));

const read = (dialect: DialectName, isStream: boolean, bytes: Buffer) =>
  readAnswer(dialects[dialect], isStream, bytes).map((one) => ({
    ...one,
    text: String(one.text),
    ids: [...one.ids],
    logprobs: one.logprobs && [...one.logprobs],
  }));

const whole = {
  index: 0,
  ids: ids(0, 4),
  logprobs: triples(0, 4).map(([logprob]) => logprob),
  text: 'xxxx',
  finishReason: 'length',
  spans: [
    { version: '1', from: 0, to: 1 },
    { version: 'v1', from: 1, to: 4 },
  ],
  endVersion: null,
  promptTokens: 3,
  cachedTokens: 2,
  experts: -1,
};

/** What a tap keeps of a stream that comes in pieces of `size` bytes. */
function tapped(bytes: Buffer, size: number, isAlone = true): Buffer {
  const tap = new AnswerTap(true, isAlone, true);
  const shared = Buffer.alloc(size);
  for (let at = 0; at < bytes.length; at += size) {
    const count = bytes.copy(shared, 0, at, at + size);
    tap.observe(shared, 0, count);
  }
  return Buffer.concat(tap.take());
}

test('a whole answer, a cumulative and an incremental stream say the same', () => {
  const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));
  assert.deepEqual(read('generate', false, json(event(0, 4, {}, true))), [whole]);
  assert.deepEqual(read('generate', false, json([event(0, 4, {}, true), event(0, 4, {}, true)])), [
    whole,
    { ...whole, index: 1 },
  ]);
  const cumulative = sse(event(0, 1), event(0, 3), event(0, 4, {}, true), '[DONE]');
  const incremental = sse(event(0, 1), event(1, 3), event(3, 4, {}, true), '[DONE]');
  for (const stream of [cumulative, incremental]) {
    assert.deepEqual(read('generate', true, stream), [whole]);
    for (const size of [1, 7, 200, 1e6])
      assert.deepEqual(read('generate', true, tapped(stream, size)), [whole], `${size}`);
  }
});

test('a stream whose lines end in CRLF is read as any other, wherever it is cut into pieces', () => {
  const crlf = (stream: Buffer): Buffer => Buffer.from(stream.toString().replaceAll('\n', '\r\n'));
  const cumulative = sse(event(0, 1), event(0, 3), event(0, 4, {}, true), '[DONE]');
  const incremental = sse(event(0, 1), event(1, 3), event(3, 4, {}, true), '[DONE]');
  for (const stream of [cumulative, incremental]) {
    for (const size of [1, 2, 3, 7, 200, 1e6])
      assert.deepEqual(read('generate', true, tapped(crlf(stream), size)), [whole], `${size}`);
  }
});

test('samples of a stream are separated', () => {
  for (const isCumulative of [true, false]) {
    const from = (at: number): number => (isCumulative ? 0 : at);
    const events = [0, 1, 2].flatMap((at) => [1, 0].map((index) => event(from(at), at + 1, { index }, at === 2)));
    const expected = { ...whole, ids: ids(0, 3), text: 'xxx', logprobs: whole.logprobs.slice(0, 3) };
    const spans = [whole.spans[0]!, { version: 'v1', from: 1, to: 3 }];
    for (const size of [11, 300, 1e6]) {
      const samples = read('generate', true, tapped(sse(...events, '[DONE]'), size, false));
      assert.deepEqual(
        samples.toSorted((a, b) => a.index - b.index),
        [
          { ...expected, spans },
          { ...expected, spans, index: 1 },
        ],
      );
    }
  }
});

test('of a cumulative stream little is kept', () => {
  const events = Array.from({ length: 600 }, (_, i) => event(0, i + 1));
  const stream = sse(...events);
  assert.ok(stream.length > 2_000_000);
  const kept = tapped(stream, 16_384);
  assert.ok(kept.length < 100_000, `${kept.length}`);
  assert.equal(read('generate', true, kept)[0]!.ids.length, 600);
});

test('events of any size are separated, cumulative or not, with one sample or several', () => {
  // A prompt's log probabilities, with tokens that are spelled like keys.
  const logprobs = Array.from({ length: 4_000 }, (_, i) => [-1, i, ['"index"', '\\', 'index', 'output_ids'][i % 4]]);
  const info = (to: number, has: boolean) => ({
    ...(has ? { input_token_logprobs: logprobs } : {}),
    ...event(0, to).meta_info,
  });
  for (const large of [[0], [1], [2], [0, 1, 2]]) {
    for (const isCumulative of [true, false]) {
      for (const [isAlone, size] of [
        [true, 1e6],
        [true, 65_536],
        [true, 50_001],
        [true, 16_384],
        [false, 65_536],
        [false, 9_973],
      ] as const) {
        const events = [0, 1, 2].flatMap((at) =>
          (isAlone ? [0] : [1, 0]).map((index) => {
            const one = event(isCumulative ? 0 : at, at + 1, { index });
            const { output_token_logprobs: own } = one.meta_info;
            return { ...one, meta_info: { ...info(at + 1, large.includes(at)), output_token_logprobs: own } };
          }),
        );
        const stream = sse(...events, '[DONE]');
        const kept = tapped(stream, size, isAlone);
        const samples = read('generate', true, kept).toSorted((a, b) => a.index - b.index);
        assert.deepEqual(
          samples.map((one) => [one.index, one.ids, one.text]),
          (isAlone ? [0] : [0, 1]).map((index) => [index, [0, 1, 2], 'xxx']),
          `${large.join()} ${isCumulative} ${isAlone} ${size}`,
        );
        // Of a cumulative one the last event of each sample, of another all.
        const last = events.slice(isAlone ? -1 : -2);
        if (isCumulative) assert.equal(kept.length, sse(...last).length);
        else assert.equal(kept.length, stream.length);
      }
    }
  }
});

test('a large answer comes in pieces that can be given away, each with its memory to itself', () => {
  const bytes = Buffer.from(Array.from({ length: 400_000 }, (_, i) => `${i},`).join(''));
  for (const isStream of [true, false]) {
    const tap = new AnswerTap(isStream, true, true);
    for (let at = 0; at < bytes.length; at += 50_000) tap.observe(bytes, at, Math.min(at + 50_000, bytes.length));
    const pieces = tap.take();
    assert.ok(pieces.length > 1);
    assert.deepEqual(Buffer.concat(pieces), bytes);
    const given = structuredClone(pieces, { transfer: pieces.map(({ buffer }) => buffer as ArrayBuffer) });
    assert.deepEqual(Buffer.concat(given), bytes);
  }
});

test('a stream that breaks off has what came until then', () => {
  const cut = sse(event(0, 1), event(0, 2), event(0, 3)).subarray(0, -20);
  const [sampled] = read('generate', true, tapped(cut, 50));
  assert.deepEqual([sampled!.ids, sampled!.finishReason, sampled!.text], [[0, 1], null, 'xx']);
  assert.deepEqual(sampled!.spans, [{ version: 'v1', from: 0, to: 2 }]);
  for (let bytes = 0; bytes < 8; bytes++) {
    assert.deepEqual(read('generate', true, tapped(cut.subarray(0, bytes), 50)), [], `${bytes} bytes`);
  }
});

test('answers whose tokens do not add up are not taken for what was sampled', () => {
  const wrong: unknown[] = [
    { ...event(0, 4), meta_info: undefined },
    { ...event(0, 4), meta_info: null },
    ...[-1, 1.5, 2 ** 32 + 1, '7', null].map((id) => ({ output_ids: [id], meta_info: { completion_tokens: 1 } })),
    { ...event(0, 4), output_ids: [1] },
    { ...event(0, 4), output_ids: [9, 1, 2, 3] },
    5,
  ];
  for (const value of wrong) {
    assert.throws(() => read('generate', false, Buffer.from(JSON.stringify(value))), Unreadable);
  }
  assert.throws(() => read('generate', false, Buffer.from('{"text')), Unreadable);
  assert.throws(() => read('completions', false, Buffer.from('{"choices":[{"text":"a"}]}')), Unreadable);
  assert.throws(() => read('completions', false, Buffer.from('{"choices":[{"token_ids":[-1]}]}')), /-1 where a token/);
});

test('completions of vLLM, whole and as a stream', () => {
  const choice = (from: number, to: number, more: object = {}) => ({
    index: 0,
    text: 'x'.repeat(to - from),
    token_ids: ids(from, to),
    logprobs: { token_logprobs: triples(from, to).map(([logprob]) => logprob) },
    finish_reason: null,
    ...more,
  });
  const usage = { prompt_tokens: 3, prompt_tokens_details: { cached_tokens: 2 } };
  const end = { finish_reason: 'length' };
  const expected = { ...whole, spans: [] };
  const body = { choices: [choice(0, 4, { ...end, prompt_token_ids: [1, 2, 3] })], usage };
  assert.deepEqual(read('completions', false, Buffer.from(JSON.stringify(body))), [expected]);
  const stream = sse(
    { choices: [choice(0, 1, { prompt_token_ids: [1, 2, 3] })] },
    { choices: [choice(1, 4, end)] },
    { choices: [], usage },
    '[DONE]',
  );
  assert.deepEqual(read('completions', true, stream), [expected]);
});

test('an answer beyond the limit is let go', () => {
  const tap = new AnswerTap(false, true, true);
  const part = Buffer.alloc(16_777_216);
  for (let bytes = 0; bytes <= MAX_ANSWER_BYTES; bytes += part.length) tap.observe(part, 0, part.length);
  assert.equal(tap.isTooLarge, true);
  assert.equal(tap.take().length, 0);
});

test('which routed experts are whose is read where engines say it', () => {
  const mark = (n: number): string => `turnout-experts-${n}`;
  const expertsOf = (dialect: 'generate' | 'completions', isStream: boolean, bytes: Buffer): number[] =>
    readAnswer(dialects[dialect], isStream, bytes).map(({ experts }) => experts);
  const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));
  const withMark = (n: number) => {
    const one = event(0, 4, {}, true);
    return { ...one, meta_info: { ...one.meta_info, routed_experts: mark(n) } };
  };
  assert.deepEqual(expertsOf('generate', false, json([withMark(0), event(0, 4), withMark(1)])), [0, -1, 1]);
  assert.deepEqual(expertsOf('generate', true, sse(event(0, 1), withMark(0), '[DONE]')), [0]);
  const choice = { index: 0, text: 'x', token_ids: [1] };
  const vllm = {
    choices: [
      { ...choice, routed_experts: { data: mark(1), shape: [1] } },
      { ...choice, index: 1 },
    ],
  };
  assert.deepEqual(expertsOf('completions', false, json(vllm)), [1, -1]);
  const sglang = sse({ choices: [choice] }, { choices: [], sglext: { routed_experts: mark(0) } });
  assert.deepEqual(expertsOf('completions', true, sglang), [0]);
});

test('events of a stream without spans name the version of what is new in them', () => {
  const named = (from: number, to: number, version: string, isCumulative: boolean) => {
    const one = event(isCumulative ? 0 : from, to);
    return { ...one, meta_info: { ...one.meta_info, weight_version: version } };
  };
  for (const isCumulative of [true, false]) {
    // It broke off: the spans would have come with the last event.
    const stream = sse(
      named(0, 1, '7', isCumulative),
      named(1, 4, '7', isCumulative),
      named(4, 5, '8', isCumulative),
      named(5, 9, '8', isCumulative),
      named(9, 12, '9', isCumulative),
      named(12, 13, '9', isCumulative),
    );
    const expected = [
      ['7', 0, 4],
      ['8', 4, 9],
      // Of several new tokens nobody knows which came before the update.
      [null, 9, 12],
      ['9', 12, 13],
    ];
    for (const size of [13, 1e6]) {
      const [sampled] = read('generate', true, tapped(stream, size));
      assert.deepEqual(sampled!.ids, ids(0, 13));
      const spans = sampled!.spans.map(({ version, from: start, to: end }) => [version, start, end]);
      // In one piece nobody sees the events between.
      if (size === 13) assert.deepEqual(spans, expected, `${isCumulative}`);
      else
        assert.ok(
          spans.every(
            ([version, start]) => version === null || expected.some(([v, s]) => v === version && s! <= start!),
          ),
        );
    }
  }
});

test('a whole answer that names one version names that of its end', () => {
  const one = event(0, 4);
  const [sampled] = read('generate', false, Buffer.from(JSON.stringify(one)));
  assert.deepEqual([sampled!.spans, sampled!.endVersion], [[], 'v1']);
  const choice = { index: 0, text: 'x', token_ids: [1, 2], finish_reason: 'stop' };
  const versions = [
    { version: '7', start: 0, end: 1 },
    { version: '8', start: 1, end: 2 },
  ];
  const spans = [
    { version: '7', from: 0, to: 1 },
    { version: '8', from: 1, to: 2 },
  ];
  const completions = (metadata: object, choices: object[] = [choice]) =>
    read('completions', false, Buffer.from(JSON.stringify({ choices, metadata }))).map((each) => [
      each.spans,
      each.endVersion,
    ]);
  assert.deepEqual(completions({ weight_version: '8', weight_versions: versions }), [[spans, null]]);
  assert.deepEqual(completions({ weight_version: '8' }), [[[], '8']]);
  assert.deepEqual(
    completions({ weight_version: '8', weight_versions: versions }, [choice, { ...choice, index: 1 }]),
    [
      [spans, null],
      [[], null],
    ],
    'SGLang tells those of the first choice',
  );
});

test('a logprob that is missing, or a stand-in of vLLM for one, is not known', () => {
  const choice = { index: 0, text: 'x', token_ids: [1, 2, 3], logprobs: { token_logprobs: [-1, null, -9999] } };
  const [sampled] = read('completions', false, Buffer.from(JSON.stringify({ choices: [choice] })));
  assert.deepEqual(sampled!.logprobs, [-1, NaN, NaN]);
  const info = {
    completion_tokens: 2,
    output_token_logprobs: [
      [null, 5, null],
      [-2, 6, null],
    ],
  };
  const answer = { text: 'x', output_ids: [5, 6], meta_info: info };
  assert.deepEqual(read('generate', false, Buffer.from(JSON.stringify(answer)))[0]!.logprobs, [NaN, -2]);
});

test('ids alone, as vLLM answers them: with spans at the end of a choice, and logprobs of the same tokens', () => {
  const entries = (...tokens: number[]) => ({ content: tokens.map((id) => ({ token_id: id, logprob: -id / 8 })) });
  const first = { index: 0, token_ids: [5], logprobs: entries(5), finish_reason: null };
  const spans = [
    { version: '7', start: 0, end: 1 },
    { version: '8', start: 1, end: 3 },
  ];
  const last = { index: 0, token_ids: [6, 7], logprobs: entries(6, 7), finish_reason: 'stop', weight_versions: spans };
  const events = [{ choices: [first], prompt_token_ids: [1, 2] }, { choices: [last] }];
  const [sampled] = read('inference', true, sse(...events, '[DONE]'));
  assert.deepEqual(
    [sampled!.ids, sampled!.logprobs],
    [
      [5, 6, 7],
      [-5 / 8, -6 / 8, -7 / 8],
    ],
  );
  assert.deepEqual(sampled!.spans, [
    { version: '7', from: 0, to: 1 },
    { version: '8', from: 1, to: 3 },
  ]);
  assert.deepEqual([sampled!.endVersion, sampled!.promptTokens], [null, 2]);
  assert.equal(readAnswer(dialects.inference, true, sse(...events))[0]!.text, null);
  for (const others of [entries(6, 8), entries(6)]) {
    const other = JSON.stringify({ choices: [{ ...last, logprobs: others }] });
    assert.throws(() => read('inference', false, Buffer.from(other)), /logprobs are of other tokens/);
  }
  const late = [
    { ...first, logprobs: null },
    { ...first, token_ids: [], logprobs: entries(5) },
  ];
  const [later] = read('inference', true, sse(...late.map((choice) => ({ choices: [choice] })), { choices: [last] }));
  assert.deepEqual(later!.logprobs, [-5 / 8, -6 / 8, -7 / 8]);
});

test('ids outside the choice are compared with those that its logprobs name', () => {
  const content = [5, 6].map((id) => ({ token_id: id, logprob: -id / 8 }));
  const choice = { index: 0, text: 'x', logprobs: { content }, finish_reason: 'stop' };
  const answerWith = (ids: readonly number[]): Buffer =>
    Buffer.from(JSON.stringify({ choices: [choice], sglext: { output_ids: [ids] } }));
  assert.deepEqual(read('completions', false, answerWith([5, 6]))[0]!.logprobs, [-5 / 8, -6 / 8]);
  assert.throws(() => read('completions', false, answerWith([5, 7])), /logprobs are of other tokens/);
});

test('a list of samples may come after white space', () => {
  const list = Buffer.from(` \n${JSON.stringify([event(0, 4)])}`);
  assert.equal(read('generate', false, list).length, 1);
});

test('a whole response with an error in place of a sample is unreadable', () => {
  const ok = event(0, 4);
  for (const answer of [{ error: { message: 'oom' } }, [ok, { error: 'oom' }], [{ error: 'oom' }, ok], {}])
    assert.throws(() => read('generate', false, Buffer.from(JSON.stringify(answer))), Unreadable);
  const list = JSON.stringify([ok, ok]);
  for (const end of [-1, -2, list.length / 2]) {
    assert.throws(() => read('generate', false, Buffer.from(list.slice(0, Math.floor(end)))), Unreadable);
  }
  assert.deepEqual(read('generate', false, Buffer.from('[]')), []);
});

test('samples of a whole response are in the order of the list, those of a stream by their index', () => {
  const list = [event(0, 4, { index: 1 }), event(0, 4, { index: 1 })];
  const indexes = (isStream: boolean, bytes: Buffer) => read('generate', isStream, bytes).map(({ index }) => index);
  assert.deepEqual(indexes(false, Buffer.from(JSON.stringify(list))), [0, 1]);
  assert.deepEqual(indexes(true, sse(event(0, 4, { index: '0' }), event(0, 4, { index: '1' }))), [0, 1]);
});
