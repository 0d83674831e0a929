import assert from 'node:assert/strict';
import { test } from 'node:test';
import { letterOfByte } from '../../../kit/byte-letters.ts';
import { TokenPieces } from '../tokens/pieces.ts';
import { readChatAnswer } from './read-answer.ts';

/** Bytes are their own ids; behind them a word, one that is there twice, and a special token. */
const pieces = new TokenPieces({
  decoder: { type: 'ByteLevel' },
  model: {
    vocab: { ...Object.fromEntries(letterOfByte.map((letter, byte) => [letter, byte])), word: 256, twice: 257 },
  },
  added_tokens: [
    { id: 258, content: '<|end|>', special: true },
    { id: 259, content: 'twice', special: false },
  ],
});

type Token = readonly [bytes: string | readonly number[], logprob: number];

/** As SGLang streams a chat: an event for a step with text, with the count of all tokens so far. */
const event = (content: string, count: number, ...tokens: readonly Token[]): object => ({
  choices: [
    {
      index: 0,
      delta: { content },
      logprobs: { content: tokens.map(([bytes, logprob]) => ({ logprob, bytes: [...Buffer.from(bytes as string)] })) },
      finish_reason: null,
    },
  ],
  usage: { completion_tokens: count },
});
const first = {
  choices: [{ index: 0, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null }],
};
const finish = { choices: [{ index: 0, delta: {}, logprobs: null, finish_reason: 'stop' }] };
const idsEvent = (...ids: readonly number[]): object => ({ choices: [], sglext: { output_ids: [ids] } });
const stream = (...events: readonly object[]): string =>
  events.map((value) => `data: ${JSON.stringify(value)}\n\n`).join('');
const read = (text: string, isLast = true) =>
  readChatAnswer(true, Buffer.from(text), pieces, isLast).map(({ ids, logprobs, message, finishReason, isTorn }) => ({
    ids: [...ids],
    logprobs: logprobs === null ? null : [...logprobs],
    content: message.content,
    finishReason,
    isTorn,
  }));

test('logprobs of a stream are at their positions, although those of tokens without text are missing', () => {
  // A letter of three bytes is told with its last one, the end not at all.
  const events = [
    first,
    event('word', 1, ['word', -1]),
    event('漢', 4, [[0xa2], -4]),
    finish,
    idsEvent(256, 0xe6, 0xbc, 0xa2, 258),
  ];
  assert.deepEqual(read(`${stream(...events)}data: [DONE]\n\n`), [
    {
      ids: [256, 0xe6, 0xbc, 0xa2, 258],
      logprobs: [-1, NaN, NaN, -4, NaN],
      content: 'word漢',
      finishReason: 'stop',
      isTorn: false,
    },
  ]);
});

test('tokens of a truncated stream are found by their bytes', () => {
  const text = stream(first, event('word', 1, ['word', -1]), event('aword', 3, ['a', -2], ['word', -3]));
  const expected = {
    ids: [256, 97, 256],
    logprobs: [-1, -2, -3],
    content: 'wordaword',
    finishReason: 'abort',
    isTorn: true,
  };
  assert.deepEqual(read(text), [expected]);
  const next = stream(event('a', 4, ['a', -4]));
  assert.deepEqual(read(text + next.slice(0, -5)), [expected], 'an event that is not whole is none');
  assert.deepEqual(read(`${text}data: {"error":{"message":"x"}}\n\ndata: [DONE]\n\n`), [expected]);
});

test('the record ends before a token that is missing or not known', () => {
  const known = { ids: [256], logprobs: [-1], content: 'word', finishReason: 'abort', isTorn: true };
  const word = event('word', 1, ['word', -1]);
  // The special token between them had no event.
  assert.deepEqual(read(stream(first, word, event('a', 3, ['a', -3]))), [known]);
  assert.deepEqual(read(stream(first, word, event('twice', 2, ['twice', -2]), event('a', 3, ['a', -3]))), [known]);
  // Text whose tokens come with the next event, which never came.
  const ahead = { choices: [{ index: 0, delta: { content: 'a' }, logprobs: null }], usage: { completion_tokens: 2 } };
  assert.deepEqual(read(stream(first, word, ahead)), [known]);
  // The end has no event: its tokens are not all of them.
  assert.deepEqual(read(stream(first, word, finish)), [{ ...known, finishReason: null }]);
  const { usage: _, ...uncounted } = word as { usage: unknown };
  assert.deepEqual(read(stream(first, uncounted)), [], 'without counts nothing is sure');
  assert.deepEqual(read(stream(first)), []);
});

test('a stream that has all but its end is whole', () => {
  const text = stream(first, event('word', 1, ['word', -1]), finish, idsEvent(256, 258));
  assert.deepEqual(read(text), [
    { ids: [256, 258], logprobs: [-1, NaN], content: 'word', finishReason: 'stop', isTorn: false },
  ]);
});

const ended = (finish_reason: string, matched_stop: unknown): object => ({
  choices: [{ index: 0, delta: {}, logprobs: null, finish_reason, matched_stop }],
});

test('while the ids of a stream are awaited, its end is taken for its last token', () => {
  const text = [first, event('word', 1, ['word', -1])];
  const whole = { logprobs: [-1, NaN], content: 'word', isTorn: false, finishReason: null };
  const readSoFar = (...events: readonly object[]) => read(stream(...text, ...events), false);
  assert.deepEqual(readSoFar(ended('stop', 258)), [{ ids: [256, 258], ...whole }]);
  assert.deepEqual(readSoFar(ended('tool_calls', 258)), [{ ids: [256, 258], ...whole }]);
  assert.deepEqual(readSoFar(ended('length', null)), [{ ...whole, ids: [256], logprobs: [-1] }]);
  // What a stop text was sampled as is not told.
  const [torn] = readSoFar(ended('stop', 'STOP'));
  assert.deepEqual([torn!.ids, torn!.isTorn], [[256], true]);
  // Nor the tokens of text that is ahead of them.
  const ahead = { choices: [{ index: 0, delta: { content: 'a' }, logprobs: null }], usage: { completion_tokens: 2 } };
  assert.equal(readSoFar(ahead, ended('stop', 258))[0]!.isTorn, true);
});

test('where the ids of a stream never come, its end proves no token: one may have been left out before it', () => {
  const text = [first, event('word', 1, ['word', -1])];
  const torn = { ids: [256], logprobs: [-1], content: 'word', isTorn: true, finishReason: null };
  for (const [reason, stop] of [
    ['stop', 258],
    ['tool_calls', 258],
    ['length', null],
    ['stop', 'STOP'],
  ] as const) {
    assert.deepEqual(read(stream(...text, ended(reason, stop))), [torn]);
  }
});

test('a step of several tokens has its stop token in the event of its text', () => {
  const text = stream(first, event('worda', 3, ['word', -1], ['a', -2], ['<|end|>', -3]), ended('stop', 258));
  const whole = { ids: [256, 97, 258], logprobs: [-1, -2, -3], content: 'worda', finishReason: 'stop', isTorn: false };
  assert.deepEqual([read(text), read(text, false)], [[whole], [whole]]);
});

test('choices break off each for itself', () => {
  const chunk = (index: number, ids: readonly number[], finish_reason: string | null): object => ({
    choices: [
      {
        index,
        delta: { content: 'x' },
        token_ids: ids,
        logprobs: { content: ids.map(() => ({ logprob: -1 })) },
        finish_reason,
      },
    ],
  });
  const begun = {
    choices: [{ index: 2, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null }],
  };
  const made = read(stream(chunk(0, [1], null), chunk(1, [2], 'length'), begun, chunk(0, [3], null)));
  assert.deepEqual(
    made.map(({ ids, content, finishReason }) => ({ ids, content, finishReason })),
    [
      { ids: [1, 3], content: 'xx', finishReason: 'abort' },
      { ids: [2], content: 'x', finishReason: 'length' },
    ],
  );
});

test('spans of weight versions count where the version of the end is null', () => {
  const spans = [
    { version: '7', start: 0, end: 1 },
    { version: '8', start: 1, end: 2 },
  ];
  const info = {
    completion_tokens: 2,
    finish_reason: { type: 'stop' },
    output_token_logprobs: [
      [-1, 5, null],
      [-2, 6, null],
    ],
    weight_version: null,
    weight_versions: spans,
  };
  const choice = { index: 0, message: { role: 'assistant', content: 'ab' }, finish_reason: 'stop', meta_info: info };
  const metadata = { weight_version: '9' };
  const [made] = readChatAnswer(false, Buffer.from(JSON.stringify({ choices: [choice], metadata })), pieces, true);
  assert.deepEqual(
    made!.spans,
    spans.map(({ version, start: from, end: to }) => ({ version, from, to })),
  );
});
