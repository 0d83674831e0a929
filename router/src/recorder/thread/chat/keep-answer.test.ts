import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chatAnswer, startChatThread } from '../../../../test/harness/chat-thread.ts';
import { temporaryFolder } from '../../../../test/harness/temporary-folder.ts';
import { ChoiceDelta } from '../../../engines/dialects/choices.ts';
import { decode, encode, endOfTurn } from '../../../../../simulator/src/tokens/tokenizer.ts';

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

const DONE = Buffer.from('data: [DONE]\n\n');
for (const [last, rest] of [
  ['a last part without data', DONE],
  ['a client that leaves after the last choice', Buffer.alloc(0)],
] as const)
  test(`a repeated call gets all of a stream of several choices that ends with ${last}`, async (t) => {
    const { calls, close } = await startChatThread(t);
    const body = Buffer.from('{"messages":[{"role":"user","content":"Go."}],"n":2,"stream":true}');
    const ask = (id: number) => calls.chatRepeat({ id, session: 's', tenant: '', key: 'key', body });
    const common = {
      session: 's',
      tenant: '',
      engine: 'vllm',
      maxModelLen: 100,
      takesIds: true,
      isInPath: false,
    } as const;
    assert.equal(await ask(1), null);
    await calls.chatOpen({ ...common, id: 1, body, key: 'key' });
    const [token] = encode('x');
    const event = (index: number, ids: readonly number[], finish: string | null): Buffer =>
      Buffer.from(
        `data: ${JSON.stringify({ object: 'text_completion', choices: [{ index, text: 'x'.repeat(ids.length), token_ids: ids, finish_reason: finish }] })}\n\n`,
      );
    await close(1, Buffer.concat([event(0, [token!], 'length'), event(1, [token!], null)]), true, false);
    await close(1, event(1, [token!, token!], 'length'), true, false);
    await close(1, rest, true);
    const again = await ask(2);
    assert.ok(again !== null && again.problem === null);
    const events = Buffer.from(again.body).toString().split('\n\n').slice(0, -1);
    assert.equal(events.pop(), 'data: [DONE]');
    const said = ['', ''];
    for (const each of events) {
      const { choices } = JSON.parse(each.slice('data: '.length)) as {
        choices: { index: number; delta: { content?: string } }[];
      };
      for (const { index, delta } of choices) said[index] += delta.content ?? '';
    }
    assert.deepEqual(said, ['x', 'xxx']);
    const stored = Buffer.from(await calls.chatRecords({ session: 's', tenant: '' })).toString();
    const { records } = JSON.parse(stored) as { records: { response: { choices: unknown[] } }[] };
    assert.deepEqual(
      records.map(({ response }) => response.choices.length),
      [2],
    );
  });

test('a turn whose ids came too late, and are others than it was continued with, is continued after a restart too', async (t) => {
  const dataDir = temporaryFolder(t);
  const before = await startChatThread(t, { dataDir });
  const user = (content: string) => ({ role: 'user', content });
  const assistant = (content: string) => ({ role: 'assistant', content });
  const event = (value: object) => Buffer.from(`data: ${JSON.stringify(value)}\n\n`);
  const ids = encode('Yes.');
  const content = ids.map((id) => ({ token: '', logprob: -0.5, bytes: [...Buffer.from(decode([id], false))] }));
  const opened = await before.open('s', [user('A?')], { stream: true });
  // As of an SGLang: the texts of its tokens name them, until the last event has their ids.
  const ended = [
    event({
      choices: [{ index: 0, delta: assistant('Yes.'), logprobs: { content } }],
      usage: { completion_tokens: ids.length },
    }),
    event({ choices: [{ index: 0, delta: {}, finish_reason: 'stop', matched_stop: endOfTurn }] }),
  ];
  await before.close(opened.id, Buffer.concat(ended), true, false);
  const chat = [user('A?'), assistant('Yes.'), user('B?')];
  const second = await before.open('s', chat);
  const late = event({ choices: [], sglext: { output_ids: [[...ids, endOfTurn - 1, endOfTurn]] } });
  await before.close(opened.id, Buffer.concat([late, Buffer.from('data: [DONE]\n\n')]), true);
  await before.close(second.id, chatAnswer([...encode('No.'), endOfTurn]));
  const [first, next] = await before.turns('s');
  assert.deepEqual([first!.drift?.kind, next!.parent, next!.drift], ['tokens', first!.id, null]);
  const after = await startChatThread(t, { dataDir });
  await after.turn('s', [...chat, assistant('No.'), user('C?')], encode('Perhaps.'));
  const last = (await after.turns('s')).at(-1)!;
  assert.deepEqual([last.parent, last.drift], [next!.id, null]);
});
