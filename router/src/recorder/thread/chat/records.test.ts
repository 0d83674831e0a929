import assert from 'node:assert/strict';
import { test } from 'node:test';
import { turnOf } from '../../../../test/harness/turns.ts';
import { TurnIds } from '../capture/turn-id.ts';
import type { Turn } from '../../shared/turn.ts';
import { TokenPieces } from '../tokens/pieces.ts';
import { type ChatRules, ChatSession } from './chat-session.ts';
import { sessionRecords } from './records.ts';

test('the records of a session come one by one: together they may be longer than a string of V8', async () => {
  const asked = { model: 'tiny', messages: [{ role: 'user', content: 'ä'.repeat(1_000) }] };
  const answered = { object: 'chat.completion', id: 'a', choices: [] };
  async function* stored(): AsyncGenerator<Turn> {
    for (let i = 0; i < 20; i++) {
      const request = Buffer.from(JSON.stringify(asked));
      yield turnOf({ startedAtMs: i, request, answer: Buffer.from(JSON.stringify(answered)) });
    }
  }
  const chat = new ChatSession('s', '', {} as ChatRules, new TurnIds());
  const pieces = new TokenPieces({ model: { vocab: {} }, decoder: { type: 'ByteLevel' } });
  const made: Uint8Array[] = [];
  for await (const part of sessionRecords(chat, stored(), pieces)) made.push(part);
  assert.equal(made.length, 22);
  const whole = JSON.parse(Buffer.concat(made).toString()) as { records: object[]; metadata: { tree: object } };
  const record = { method: 'POST', path: '/generate', status_code: 200, request: asked, response: answered };
  assert.deepEqual(
    whole.records.map((each) => ({ ...each, timestamp: 0, request_timestamp: 0 })),
    Array.from({ length: 20 }, () => ({ ...record, timestamp: 0, request_timestamp: 0 })),
  );
});
