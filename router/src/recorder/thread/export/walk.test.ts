import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type SentMessage, startChatThread } from '../../../../test/harness/chat-thread.ts';
import { memoryUsed } from '../../../../test/harness/memory-used.ts';
import { othersDuring } from '../../../../test/harness/others-during.ts';
import { turnOf } from '../../../../test/harness/turns.ts';
import { encode } from '../../../../../simulator/src/tokens/tokenizer.ts';
import type { ExportFormat } from '../../shared/export-formats.ts';
import type { Turn } from '../../shared/turn.ts';
import { MemoryStore } from '../store/memory.ts';
import { PackingStore } from '../store/packing-store.ts';
import { exportCalls } from './export-calls.ts';
import { exportBytes } from './formats.ts';
import { noProgress } from './walk.ts';

const TURNS = 100;
/** Counts what is read of a store: a request that is unpacked with others has those read too. */
const countReads = (t: TestContext) => t.mock.method(MemoryStore.prototype, 'get').mock;

/** A store with a chat of many turns, each with all that was said before; as another process finds it. */
async function longChat(): Promise<PackingStore> {
  const inner = new MemoryStore(1e9);
  const turns: Turn[] = [];
  for (let i = 0; i < TURNS; i++) {
    const request = Buffer.from(JSON.stringify({ said: Array.from({ length: i + 1 }, (_, n) => `${n} `.repeat(100)) }));
    const parent = turns.at(-1) ?? null;
    turns.push(turnOf({ session: 'a', parent: parent?.id ?? null, keeps: 4 * i, request, answer: request }));
  }
  await new PackingStore(inner).put(turns);
  return new PackingStore(inner);
}

async function exported(store: PackingStore, format: ExportFormat): Promise<Buffer> {
  const pieces: Uint8Array[] = [];
  const order = { format, query: {}, dataDir: null };
  for await (const piece of await exportBytes(store, order, noProgress())) pieces.push(piece);
  return Buffer.concat(pieces);
}

for (const format of ['parquet', 'safetensors'] as const) {
  test(`${format}: each turn of a long chat is read once, and no request is unpacked`, async (t) => {
    const store = await longChat();
    const reads = countReads(t);
    await exported(store, format);
    assert.equal(reads.callCount(), TURNS);
  });
}

test('jsonl: each request of a long chat is unpacked once, with the one before it', async (t) => {
  const store = await longChat();
  const reads = countReads(t);
  const { turns } = JSON.parse((await exported(store, 'jsonl')).toString()) as { turns: { request: string }[] };
  assert.equal(reads.callCount(), 2 * TURNS, 'once for the line of turns, once for the bodies');
  assert.equal((JSON.parse(turns.at(-1)!.request) as { said: string[] }).said.length, TURNS);
});

test('the samples of a long chat are read without its requests', async (t) => {
  const { calls, turn } = await startChatThread(t);
  let messages: SentMessage[] = [];
  for (let i = 0; i < TURNS; i++)
    ({ messages } = await turn('a', [...messages, { role: 'user', content: `${i} `.repeat(100) }], encode('Yes.')));
  const reads = countReads(t);
  const samples = await calls.chatSamples({ session: 'a', tenant: '', maxTokens: 0, metadata: {} });
  assert.ok(typeof samples !== 'string' && samples.length > 0);
  assert.equal(reads.callCount(), TURNS);
});

test('other calls of the thread run while an export reads turns', async (t) => {
  const store = await longChat();
  const others = await othersDuring(t, () => exported(store, 'safetensors'));
  assert.ok(others >= TURNS, `${others} others`);
});

test('other calls of the thread run while a list reads sessions', async (t) => {
  const store = new MemoryStore(1e9);
  store.put(Array.from({ length: 100 }, (_, i) => turnOf({ session: `s${i}` })));
  const { sessionsJson } = exportCalls(
    { store } as never,
    null,
    async () => {},
    async () => null,
  );
  const others = await othersDuring(t, () => sessionsJson({ limit: 100 }));
  assert.ok(others >= 100, `${others} others`);
});

test('an export does not hold its first trajectory to its end', async () => {
  const read: WeakRef<Turn>[] = [];
  class Watched extends MemoryStore {
    override get(id: string, withBodies = true): Turn | null {
      const turn = super.get(id);
      if (turn !== null && withBodies) read.push(new WeakRef(turn));
      return turn;
    }
  }
  const store = new Watched(1e9);
  store.put(Array.from({ length: 6 }, (_, i) => turnOf({ session: `s${i}`, ids: new Int32Array(100_000) })));
  const bytes = await exportBytes(store, { format: 'jsonl', query: {}, dataDir: null }, noProgress());
  while (read.length < 4) await bytes.next();
  // A reference that was made or read in this turn of the event loop keeps its object.
  await nextTurn();
  memoryUsed();
  assert.ok(read[0]!.deref() === undefined);
});
