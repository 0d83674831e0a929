import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startChatThread } from '../../../../test/harness/chat-thread.ts';
import { ChoiceDelta } from '../../../engines/dialects/choices.ts';
import { encode, endOfTurn } from '../../../../../simulator/src/tokens/tokenizer.ts';

const CHOICES = 16;
const TOKENS = 50;

test('of a stream whose choices end one by one, each token is read twice at most: when its choice ends, and when all have', async (t) => {
  const { calls, open, close, turns } = await startChatThread(t);
  const event = (index: number, id: number): string => {
    const finish = id === endOfTurn ? 'stop' : null;
    return `data: ${JSON.stringify({ choices: [{ index, delta: { content: 'x' }, token_ids: [id], finish_reason: finish }] })}\n\n`;
  };
  const [token] = encode('x');
  const each = Array.from({ length: CHOICES }, (_, index) => index);
  const grown = Array.from({ length: TOKENS }, () => each.map((index) => event(index, token!)).join('')).join('');
  const { id } = await open('a', [{ role: 'user', content: 'Go.' }], { n: CHOICES, stream: true });
  const read = t.mock.method(ChoiceDelta.prototype, 'delta').mock;
  for (const index of each) {
    await close(id, Buffer.from((index === 0 ? grown : '') + event(index, endOfTurn)), true, false);
    assert.equal(calls.chatStats().turns, index + 1, 'a choice is a turn when it has ended');
  }
  await close(id, Buffer.from('data: {"choices":[],"usage":{}}\n\ndata: [DONE]\n\n'), true);
  assert.ok(read.callCount() <= 2 * CHOICES * (TOKENS + 1), `${read.callCount()} events`);
  const made = await turns('a');
  assert.deepEqual(
    made.map(({ loss_mask: mask }) => mask.reduce((sum, bit) => sum + bit, 0)),
    each.map(() => TOKENS + 1),
  );
});
