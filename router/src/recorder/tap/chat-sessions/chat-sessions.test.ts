import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import type { Exchange } from '../../../exchange.ts';
import type { Worker } from '../../../fleet/worker.ts';
import { MAX_ANSWER_BYTES } from '../answer-tap.ts';
import type { ChatOpened } from '../../thread/chat/chat-calls.ts';
import { AnswerCapture, type AnswerCaptureParts } from '../answer-capture.ts';
import { ExpertsChannel, ExpertsTap } from '../experts-tap.ts';
import { StoredFirst } from '../stored-first.ts';
import type { Recorder } from '../recorder.ts';
import type { ResponseHead } from '../../../wire/response-head.ts';
import type { TokenizerCheck } from '../tokenizer-check/tokenizer-check.ts';
import { stateStore } from '../../../../test/harness/policy.ts';
import { ChatSessions } from './chat-sessions.ts';

const PATH = '/v1/chat/completions';
const OPENED: ChatOpened = {
  body: new Uint8Array(2),
  path: PATH,
  form: 'chat',
  isStream: true,
  choices: 1,
  wishes: {},
  problem: null,
};

/** A plugin over a thread that the test plays, and an exchange of a plain chat that carries a session key. */
function scene(open: () => Promise<ChatOpened>, settings: { isRequired?: boolean; engine?: 'sglang' | 'auto' } = {}) {
  const { isRequired = false, engine = 'sglang' } = settings;
  const told: string[] = [];
  const lines: string[] = [];
  const thread = {
    ask: open,
    tell: (name: string) => void told.push(name),
  };
  const channel = new ExpertsChannel({ ask: () => Promise.resolve(undefined as never), tell: () => {}, starts: 1 });
  const storedFirst = new StoredFirst(pino({ level: 'silent' }));
  const recorder = {
    thread,
    refusal: null,
    isRequired,
    versions: {
      begin: () => null,
      follow: () => {},
      asked: () => ({ before: '', isProof: false, stale: '', ticket: 0, changes: [] }),
      complete: () => {},
    },
    captureAnswer: (parts: AnswerCaptureParts) =>
      new AnswerCapture(parts, new ExpertsTap(channel, parts.tap), storedFirst),
  };
  const sessions = new ChatSessions(
    { equality: 'strict', forward: 'ids', engine, verify: false, request: {}, samples: 'ends' },
    {
      recorder: recorder as unknown as Recorder,
      tokenizerCheck: {} as unknown as TokenizerCheck,
      captureChat: true,
      sessionHeaders: ['x-session-id'],
      log: pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) }),
    },
  );
  const head = { method: 'POST', target: PATH, requestId: '', get: () => 'a', drop: () => {} };
  const worker = { models: null, url: 'http://127.0.0.1:1', engine: 'openai' } as unknown as Worker;
  const x = {
    ...stateStore(),
    path: PATH,
    head,
    tenant: '',
    model: '',
    outcome: null,
    worker,
    key: null,
    seams: [],
  } as unknown as Exchange;
  return { sessions, told, lines, worker, x };
}

test('an answer that is too large for the record is counted, and the log says so', async () => {
  const { sessions, told, lines, worker, x } = scene(() => Promise.resolve(OPENED));
  await sessions.requestBody(x, Buffer.from('{}'), worker);
  const observer = sessions.observeResponse(x, { status: 200, isEventStream: true } as ResponseHead);
  const piece = Buffer.alloc(4_194_304, 'x');
  for (let seen = 0; seen <= MAX_ANSWER_BYTES; seen += piece.length) observer!.observe(piece, 0, piece.length);
  sessions.finished(Object.assign(x, { outcome: 'complete' }));
  assert.deepEqual(told, ['chatDrop']);
  assert.equal(sessions.unkept, 1);
  assert.match(lines.join(''), /"worker":"http:\/\/127\.0\.0\.1:1".*a response was not captured/);
});

test('when the thread has ended plain chats go on as they are, counted; chats in sessions by path can not', async () => {
  const { sessions, worker, x } = scene(() => Promise.reject(new Error('the thread has ended')));
  const body = Buffer.from('{}');
  assert.equal(await sessions.requestBody(x, body, worker), body);
  assert.equal(sessions.observeResponse(x, { status: 200, isEventStream: false } as ResponseHead), null);
  assert.equal(sessions.unkept, 1);
  sessions.finished(x);
  x.head.target = `/sessions/a${PATH}`;
  sessions.retarget(x);
  await assert.rejects(sessions.requestBody(x, body, worker), /the thread has ended/);
});

const notForRecord = [
  ['that is too large', Buffer.alloc(33_554_433), {}, /may have at most 33554432 bytes/],
  ['that its template refuses', Buffer.from('{}'), {}, /roles must alternate/],
  ['of an engine that takes no ids', Buffer.from('{}'), { engine: 'auto' }, /neither SGLang nor vLLM/],
] as const;
for (const [what, body, options, words] of notForRecord) {
  test(`a plain chat ${what} goes as it is, counted; in a session by path, or where captures are required, it is refused`, async () => {
    const open = (): Promise<ChatOpened> => Promise.resolve({ problem: 'roles must alternate' });
    const { sessions, worker, x, lines } = scene(open, options);
    assert.equal(await sessions.requestBody(x, body, worker), body);
    assert.equal(sessions.observeResponse(x, { status: 200, isEventStream: false } as ResponseHead), null);
    assert.equal(sessions.unkept, 1);
    assert.match(lines.join(''), words);
    sessions.finished(x);
    x.head.target = `/sessions/a${PATH}`;
    sessions.retarget(x);
    await assert.rejects(sessions.requestBody(x, body, worker), words);
    const strict = scene(open, { ...options, isRequired: true });
    await assert.rejects(strict.sessions.requestBody(strict.x, body, worker), words);
    assert.equal(strict.sessions.unkept, 0);
  });
}
