import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import type { Exchange } from '../../exchange.ts';
import type { Worker } from '../../fleet/worker.ts';
import { MAX_ANSWER_BYTES } from '../../trajectory/capture/answer-tap.ts';
import type { ChatOpened } from '../../trajectory/chat/chat-calls.ts';
import { ExpertsRoad, ExpertsTap } from '../../trajectory/capture/experts-tap.ts';
import type { Trajectories } from '../../trajectory/trajectories.ts';
import type { ResponseHead } from '../../wire/response-head.ts';
import type { SameTokens } from '../same-tokens/same-tokens.ts';
import { ChatSessions } from './chat-sessions.ts';

const OPENED: ChatOpened = {
  body: new Uint8Array(2),
  path: '/v1/chat/completions',
  form: 'chat',
  isStream: true,
  wishes: {},
  problem: null,
};

test('an answer that is too large for the record is counted, and the log says so', async () => {
  const told: string[] = [];
  const lines: string[] = [];
  const ledger = {
    ask: () => Promise.resolve(OPENED),
    tell: (name: string) => void told.push(name),
  };
  const road = new ExpertsRoad({ take: () => Promise.resolve(), end: () => {}, drop: () => {} });
  const trajectories = {
    ledger,
    refusal: null,
    expertsTap: (ear: ConstructorParameters<typeof ExpertsTap>[1]) => new ExpertsTap(road, ear),
  };
  const sessions = new ChatSessions(
    { equality: 'strict', forward: 'ids', engine: 'sglang', verify: false },
    {
      trajectories: trajectories as unknown as Trajectories,
      sameTokens: {} as unknown as SameTokens,
      captureChat: true,
      sessionHeaders: ['x-session-id'],
      log: pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) }),
    },
  );
  const head = { method: 'POST', target: '/v1/chat/completions', requestId: '', get: () => 'a', drop: () => {} };
  const worker = { models: null, url: 'http://127.0.0.1:1' } as unknown as Worker;
  const x = { path: '/v1/chat/completions', head, tenant: '', model: '', outcome: null, worker, key: null };
  const exchange = x as unknown as Exchange;
  await sessions.requestBody(exchange, Buffer.from('{}'), worker);
  const ear = sessions.hearAnswer(exchange, { status: 200, isEventStream: true } as ResponseHead);
  const piece = Buffer.alloc(4_194_304, 'x');
  for (let heard = 0; heard <= MAX_ANSWER_BYTES; heard += piece.length) ear!.hear(piece, 0, piece.length);
  sessions.finished(Object.assign(exchange, { outcome: 'complete' }));
  assert.deepEqual(told, ['chatDrop']);
  assert.equal(sessions.tooLarge, 1);
  assert.match(lines.join(''), /"worker":"http:\/\/127\.0\.0\.1:1".*an answer is not on record/);
});
