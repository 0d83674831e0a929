import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { temporaryFolder } from '../../../test/harness/temporary-folder.ts';
import { writeTokenizer } from '../../sim/tokenizer-files.ts';
import { encode } from '../../sim/tokenizer.ts';
import { MemoryStore } from '../store/memory.ts';
import { TurnWriter } from '../store/writer.ts';
import { loadTokenizer } from '../tokens/load-tokenizer.ts';
import { readChatRequest } from './chat-request.ts';
import type { ChatSession } from './chat-session.ts';
import { loadChatTemplate } from './chat-template.ts';
import { Chats } from './chats.ts';

async function chatsOf(t: TestContext, memoryBytes: number): Promise<Chats> {
  const folder = temporaryFolder(t);
  writeTokenizer(folder);
  const rules = {
    tokenizer: await loadTokenizer(folder),
    template: loadChatTemplate(folder),
    equality: 'strict' as const,
  };
  return new Chats(rules, new TurnWriter(new MemoryStore(1_000_000)), memoryBytes);
}

const itself = (chats: Chats, session: string): Promise<ChatSession> =>
  chats.with(session, '', (chat) => Promise.resolve(chat));

/** A turn whose prompt its engine rendered. */
async function addTurn(chat: ChatSession, content: unknown): Promise<void> {
  const request = readChatRequest(Buffer.from(JSON.stringify({ messages: [{ role: 'user', content }] })));
  assert.ok(typeof request !== 'string');
  const open = await chat.ask(request);
  const sample = {
    index: 0,
    ids: Int32Array.from(encode('Yes.')),
    logprobs: null,
    finishReason: 'stop',
    spans: [],
    promptTokens: -1,
    cachedTokens: -1,
    experts: -1,
    message: { role: 'assistant', content: 'Yes.' },
    promptIds: encode('What is this?'),
    isTorn: false,
  };
  const facts = { group: '', worker: '', startedAtMs: 0, ttftMs: 0, generationMs: 0, version: '' };
  const kept = { answer: Buffer.from('{}'), callKey: '' };
  await chat.answered(open, false, [sample], facts, kept, () => null);
}

test('sessions without turns take memory too: those that were asked for long ago go', async (t) => {
  const chats = await chatsOf(t, 10_000);
  const first = await itself(chats, 'first');
  assert.equal(await itself(chats, 'first'), first, 'there is room');
  for (let i = 0; i < 100; i++) await itself(chats, `other ${i}`);
  assert.notEqual(await itself(chats, 'first'), first);
});

test('images that a client sent take memory: sessions with them go as their size says', async (t) => {
  const chats = await chatsOf(t, 1_000_000);
  const ask = async (session: string, url: string): Promise<ChatSession> => {
    const content = [
      { type: 'text', text: 'What is this?' },
      { type: 'image_url', image_url: { url } },
    ];
    await chats.with(session, '', (chat) => addTurn(chat, content));
    return itself(chats, session);
  };
  const first = await ask('first', 'data:image/png;base64,AAAA');
  assert.equal(await itself(chats, 'first'), first, 'there is room');
  await ask('large', `data:image/png;base64,${'A'.repeat(1_500_000)}`);
  assert.notEqual(await itself(chats, 'first'), first);
});
