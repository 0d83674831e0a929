import assert from 'node:assert/strict';
import { test } from 'node:test';
import { seededRandom } from '../../src/kit/rng.ts';
import { encode } from '../../../simulator/src/tokens/tokenizer.ts';
import { words } from '../../../simulator/src/tokens/words.ts';
import { type SentMessage, startChatThread } from '../harness/chat-thread.ts';
import { memoryUsed } from '../harness/memory-used.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

const TURNS = 100;
const HISTORY_BYTES = 268_000;
const MB = 1_048_576;

for (const store of ['sqlite', 'memory'] as const) {
  test(`${store}: of each of 100 turns what is new is stored: 268 KB of history take less than 1 MB`, async (t) => {
    const random = seededRandom(7);
    const text = (bytes: number): string => {
      let made = '';
      while (made.length < bytes) made += ` ${words[Math.floor(random() * words.length)]!}`;
      return made;
    };
    const { turn, turns, calls } = await startChatThread(t, { store, dataDir: temporaryFolder(t) });
    const chat = async (session: string): Promise<SentMessage[][]> => {
      const asked: SentMessage[][] = [];
      let known: readonly SentMessage[] = [];
      for (let n = 0; n < TURNS; n++) {
        const messages = [...known, { role: 'user', content: text((0.9 * HISTORY_BYTES) / TURNS) }];
        asked.push(messages);
        ({ messages: known } = await turn(session, messages, encode('Yes.')));
      }
      assert.ok(JSON.stringify(known).length > 0.9 * HISTORY_BYTES);
      return asked;
    };
    // What is loaded and compiled once is no session's.
    await chat('first');
    await turns('first');
    const { bytes: bytesBefore } = await calls.storeState();
    const before = memoryUsed();
    const asked = await chat('a');
    await turns('first');
    const bytes = (await calls.storeState()).bytes - bytesBefore;
    const used = memoryUsed() - before;
    const kept = await turns('a');
    assert.deepEqual(
      kept.map(({ request }) => (JSON.parse(request) as { messages: unknown }).messages),
      asked,
    );
    assert.ok(bytes < MB, `${bytes} bytes in the store`);
    // The session itself: ids, text and messages of each turn once.
    assert.ok(used < 5 * MB, `${used} bytes of memory`);
    t.diagnostic(`${bytes} bytes in the store, ${used} bytes of memory`);
  });
}
