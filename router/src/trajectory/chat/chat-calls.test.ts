import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { temporaryFolder } from '../../../test/harness/temporary-folder.ts';
import { writeTokenizer } from '../../sim/tokenizer-files.ts';
import { MemoryStore } from '../store/memory.ts';
import { TurnWriter } from '../store/writer.ts';
import { loadTokenizer } from '../tokens/load-tokenizer.ts';
import { chatCalls } from './chat-calls.ts';
import { newSessionId } from './session-id.ts';

async function callsOf(t: TestContext) {
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const loaded = await loadTokenizer(tokenizerPath);
  const writer = new TurnWriter(new MemoryStore(1_000_000));
  const removeStored = (): Promise<number> => Promise.resolve(0);
  const calls = chatCalls({ tokenizer: () => loaded, tokenizerPath, dataDir: null, writer, files: null, removeStored });
  calls.chatBegin({ equality: 'strict', request: {}, samples: 'ends' });
  const body = Buffer.from('{"messages":[{"role":"user","content":"Hello."}]}');
  const call = { body, engine: 'sglang' as const, maxModelLen: 0, takesIds: true, key: '', tenant: '' };
  return { ...calls, call };
}

test('a chat that waited while its session was removed does not begin it again; a key in a header does', async (t) => {
  const { call, chatKnown, chatOpen, chatRemove } = await callsOf(t);
  const name = { session: newSessionId(), tenant: '' };
  assert.equal(await chatKnown(name), true);
  assert.equal(await chatRemove(name), true);
  const late = await chatOpen({ ...call, ...name, id: 1, isInPath: true });
  assert.match(late.problem ?? '', /There is no session/);
  assert.equal(await chatKnown(name), false);
  const plain = await chatOpen({ ...call, ...name, id: 2, isInPath: false });
  assert.equal(plain.problem, null);
  assert.equal(await chatKnown(name), true);
});
