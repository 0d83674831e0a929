import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { memoryUsed } from '../../../../test/harness/memory-used.ts';
import { temporaryFolder } from '../../../../test/harness/temporary-folder.ts';
import { until } from '../../../../test/harness/within.ts';
import { writeTokenizer } from '../../../../../simulator/src/tokens/tokenizer-files.ts';
import { encode } from '../../../../../simulator/src/tokens/tokenizer.ts';
import { MemoryStore } from '../store/memory.ts';
import { TurnWriter } from '../store/writer.ts';
import type { Turn } from '../../shared/turn.ts';
import { loadTokenizer } from '../tokens/load-tokenizer.ts';
import { readChatRequest } from './chat-request.ts';
import type { ChatSession } from './chat-session.ts';
import { loadChatTemplate } from './chat-template.ts';
import { Chats } from './chats.ts';

async function chatsOf(t: TestContext, memoryBytes: number, store = new MemoryStore(1_000_000)): Promise<Chats> {
  const folder = temporaryFolder(t);
  writeTokenizer(folder);
  const rules = {
    tokenizer: await loadTokenizer(folder),
    template: loadChatTemplate(folder),
    equality: 'strict' as const,
  };
  return new Chats(rules, new TurnWriter(store), memoryBytes);
}

const itself = (chats: Chats, session: string): Promise<ChatSession> =>
  chats.with(session, '', (chat) => Promise.resolve(chat));

/** A turn whose prompt its engine rendered. */
async function addTurn(chat: ChatSession, ...contents: unknown[]): Promise<Turn[]> {
  const messages = contents.map((content, i) => ({ role: i % 2 === 0 ? 'user' : 'assistant', content }));
  const request = readChatRequest(Buffer.from(JSON.stringify({ messages })));
  assert.ok(typeof request !== 'string');
  const open = await chat.ask(request);
  const sample = {
    index: 0,
    ids: Int32Array.from(encode('Yes.')),
    logprobs: null,
    finishReason: 'stop',
    spans: [],
    endVersion: null,
    promptTokens: null,
    cachedTokens: null,
    experts: -1,
    message: { role: 'assistant', content: 'Yes.' },
    promptIds: encode('What is this?'),
    isTorn: false,
  };
  const asked = { before: null, isProof: false, stale: null, ticket: null, changes: [] };
  const facts = { group: '', worker: '', startedAtMs: 0, ttftMs: 0, generationMs: 0, asked };
  const choice = { message: sample.message, token_ids: [...sample.ids], finish_reason: 'stop' };
  const kept = { answer: Buffer.from(JSON.stringify({ choices: [choice] })), callKey: '' };
  return chat.answered(open, false, [sample], facts, kept, () => ({ experts: null }));
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

/** Asks in the session `a`, and puts its turns into the store. */
const keptTurns =
  (chats: Chats) =>
  (...contents: unknown[]): Promise<Turn[]> =>
    chats.with('a', '', async (chat) => {
      const turns = await addTurn(chat, ...contents);
      for (const turn of turns) chats.writer.put(turn);
      return turns;
    });

/** A store that a test takes away. */
class AwayStore extends MemoryStore {
  isFull = false;
  isAway = false;

  override put(turns: readonly Turn[]): void {
    if (this.isFull) throw new Error('disk full');
    super.put(turns);
  }

  override get(id: string): Turn | null {
    if (this.isAway) throw new Error('no connection');
    return super.get(id);
  }
}

test('a session goes on behind turns that wait for a store that takes none', async (t) => {
  const store = new AwayStore(1_000_000);
  const chats = await chatsOf(t, 1_000_000, store);
  store.isFull = true;
  const ask = keptTurns(chats);
  const [first] = await ask('One?');
  chats.letGo('a', '');
  const [second] = await ask('One?', 'Yes.', 'Two?');
  assert.equal(second!.parent, first!.id);
  store.isFull = false;
  await chats.writer.close();
});

test('a turn that a failing store gets while the session is read is not missed', async (t) => {
  const store = new AwayStore(1_000_000);
  const chats = await chatsOf(t, 1_000_000, store);
  const ask = keptTurns(chats);
  const [first] = await ask('One?');
  await chats.writer.flush();
  store.isFull = true;
  const [second] = await ask('One?', 'Yes.', 'Two?');
  await chats.writer.flush();
  store.isFull = false;
  const read: string[] = [];
  for await (const { id } of chats.stored('a', '')) {
    read.push(id);
    // The writer tries again by itself.
    if (read.length === 1) await until('the turn is stored', () => chats.writer.state.pending === 0);
  }
  assert.deepEqual(read, [first!.id, second!.id]);
  await chats.writer.close();
});

test('while its turns can not be read a session is lost; once they can it goes on behind them', async (t) => {
  const store = new AwayStore(1_000_000);
  const chats = await chatsOf(t, 1_000_000, store);
  const ask = keptTurns(chats);
  const [first] = await ask('One?');
  await chats.writer.flush();
  chats.letGo('a', '');
  store.isAway = true;
  const [lost] = await ask('One?', 'Yes.', 'Two?');
  assert.deepEqual([lost!.parent, lost!.drift], [null, { kind: 'lost', at: 0 }]);
  assert.equal(chats.loadFailures, 1);
  store.isAway = false;
  const [other] = await ask('One?', 'Yes.', 'Three?');
  assert.equal(other!.parent, first!.id);
  assert.equal(other!.drift?.kind, 'template', 'its engine rendered other ids, and nothing was lost');
  await chats.writer.close();
});

test('a session in memory does not keep what was made of it last', async (t) => {
  const chats = await chatsOf(t, 1_000_000);
  await itself(chats, 'first');
  const before = memoryUsed();
  for (let i = 0; i < 50; i++) await chats.with(`s${i}`, '', () => Promise.resolve(Buffer.alloc(1_000_000)));
  const bytes = (memoryUsed() - before) / 50;
  assert.ok(bytes < 100_000, `${bytes} bytes per session`);
});
