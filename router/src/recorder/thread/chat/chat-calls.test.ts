import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { chatAnswer } from '../../../../test/harness/chat-thread.ts';
import { temporaryFolder } from '../../../../test/harness/temporary-folder.ts';
import { turnsIn } from '../../../../test/harness/turns.ts';
import { until } from '../../../../test/harness/within.ts';
import { writeTokenizer } from '../../../../../simulator/src/tokens/tokenizer-files.ts';
import { encode, endOfTurn } from '../../../../../simulator/src/tokens/tokenizer.ts';
import { ChoiceDelta } from '../../../engines/dialects/choices.ts';
import type { Turn } from '../../shared/turn.ts';
import { HeapLimits } from '../heap-limits.ts';
import { MemoryStore } from '../store/memory.ts';
import { TurnWriter } from '../store/writer.ts';
import { loadTokenizer } from '../tokens/load-tokenizer.ts';
import { type ChatParts, chatCalls } from './chat-calls.ts';
import { newSessionId } from '../../shared/session-id.ts';

interface Given {
  readonly store?: MemoryStore;
  readonly memoryBytes?: number;
  readonly heap?: HeapLimits;
}

async function callsOf(
  t: TestContext,
  { store = new MemoryStore(1_000_000), memoryBytes = 1_000_000, heap = new HeapLimits() }: Given = {},
) {
  const tokenizerPath = temporaryFolder(t);
  writeTokenizer(tokenizerPath);
  const loaded = await loadTokenizer(tokenizerPath);
  const writer = new TurnWriter(store);
  const removeStored: ChatParts['removeStored'] = (_, during) => during(() => Promise.resolve(0));
  const parts = { tokenizerPath, dataDir: null, writer, memoryBytes, heap, files: null, removeStored };
  const calls = chatCalls({ tokenizer: () => loaded, ...parts });
  calls.chatBegin({ equality: 'strict', request: {}, samples: 'ends' });
  const body = Buffer.from('{"messages":[{"role":"user","content":"Hello."}]}');
  const call = { body, engine: 'sglang' as const, maxModelLen: 0, takesIds: true, key: '', tenant: '' };
  return { ...calls, call, writer };
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

test('a chat that comes while the heap is almost full is refused, and the next one after it is taken', async (t) => {
  const guard = { look: () => {}, isHigh: true };
  const { call, chatOpen } = await callsOf(t, { heap: new HeapLimits(guard, 1e9) });
  const asked = { ...call, session: newSessionId(), id: 1, isInPath: false };
  const refused = await chatOpen(asked);
  assert.equal('code' in refused && refused.code, 'overloaded');
  assert.match(refused.problem ?? '', /short of memory/);
  guard.isHigh = false;
  assert.equal((await chatOpen({ ...asked, id: 2 })).problem, null);
});

const facts = {
  session: '',
  tenant: '',
  model: '',
  path: '/v1/chat/completions',
  group: '',
  worker: '',
  asked: { before: null, isProof: false, stale: null, ticket: null, changes: [] },
  startedAtMs: 0,
  ttftMs: 0,
  generationMs: 0,
};

/** Two calls with the same question, and what becomes of each answer; the client continues ' the of ten'. */
const attempts: Record<string, { answers: [text: string, isWhole: boolean][]; isAmbiguous: boolean }> = {
  'one complete response': { answers: [[' the of ten', true]], isAmbiguous: false },
  'two equal responses': {
    answers: [
      [' the of ten', true],
      [' the of ten', true],
    ],
    isAmbiguous: true,
  },
  'a complete response, and a truncated one with the same beginning': {
    answers: [
      [' the of ten', true],
      [' the of', false],
    ],
    isAmbiguous: true,
  },
  'a complete response, and a truncated one that is longer': {
    answers: [
      [' the of ten', true],
      [' the of ten of', false],
    ],
    isAmbiguous: true,
  },
  'a complete response, and a truncated one with another beginning': {
    answers: [
      [' the of ten', true],
      [' of', false],
    ],
    isAmbiguous: false,
  },
};

async function attempted(t: TestContext) {
  const calls = await callsOf(t);
  const name = { session: newSessionId(), tenant: '' };
  const question = { role: 'user', content: 'Hello.' };
  const ask = (id: number, messages: readonly object[]) => {
    const body = Buffer.from(JSON.stringify({ messages, stream: true, max_tokens: 8 }));
    return calls.chatOpen({ ...calls.call, ...name, engine: 'vllm', body, id, isInPath: true });
  };
  return {
    ask: (id: number) => ask(id, [question]),
    goOn: (id: number) => ask(id, [question, { role: 'assistant', content: ' the of ten' }, question]),
    answer(id: number, text: string, isWhole: boolean) {
      const choice = { index: 0, text, token_ids: encode(text), finish_reason: isWhole ? 'length' : null };
      const answer = Buffer.from(
        `data: ${JSON.stringify({ choices: [choice] })}\n\n${isWhole ? 'data: [DONE]\n\n' : ''}`,
      );
      return calls.captures.end({
        id,
        request: null,
        isStream: true,
        isLast: true,
        answer: [answer],
        isAwaited: false,
        facts,
        expertsKey: null,
      });
    },
    async turns() {
      await calls.writer.flush();
      return turnsIn(calls.writer.store);
    },
  };
}

for (const [what, { answers, isAmbiguous }] of Object.entries(attempts)) {
  test(`${what}: the turn that continues is ${isAmbiguous ? '' : 'not '}ambiguous, and exact`, async (t) => {
    const { ask, goOn, answer, turns } = await attempted(t);
    for (const id of answers.keys()) assert.equal((await ask(id)).problem, null);
    for (const [id, [text, isWhole]] of answers.entries()) await answer(id, text, isWhole);
    await goOn(9);
    await answer(9, ' of', true);
    const last = (await turns()).at(-1)!;
    assert.deepEqual([last.isAmbiguous ?? false, last.drift], [isAmbiguous, null]);
  });
}

test('a complete response, and one to the same question that is still in flight: ambiguous, and exact', async (t) => {
  const { ask, goOn, answer, turns } = await attempted(t);
  await ask(1);
  await ask(2);
  await answer(1, ' the of ten', true);
  await goOn(9);
  await answer(9, ' of', true);
  const [first, second] = await turns();
  assert.deepEqual([second!.isAmbiguous, second!.drift, second!.keeps], [true, null, first!.ids.length]);
});

test('a response whose request came before the thread was started again is reported as lost', async (t) => {
  const { answer, turns } = await attempted(t);
  assert.match((await answer(7, ' of', true)) ?? '', /started again meanwhile/);
  assert.deepEqual(await turns(), []);
});

test('a response that is still in flight, and no other: the text of the request is tokenised', async (t) => {
  const { ask, goOn, answer, turns } = await attempted(t);
  await ask(1);
  await goOn(9);
  await answer(9, ' of', true);
  const [turn] = await turns();
  assert.deepEqual([turn!.isAmbiguous ?? false, turn!.drift], [false, { kind: 'text', at: 0 }]);
});

/** A session whose answers are `often` in two tokens; tokenised again it is one. */
async function oftenIn(t: TestContext, given: Given, messages: Record<string, object[]> = {}) {
  const { chatOpen, chatSamples, call, captures, writer } = await callsOf(t, given);
  let id = 0;
  const ask = async (session: string, content: string): Promise<number> => {
    (messages[session] ??= []).push({ role: 'user', content });
    const body = Buffer.from(JSON.stringify({ messages: messages[session] }));
    assert.equal((await chatOpen({ ...call, body, session, id: ++id, isInPath: false })).problem, null);
    return id;
  };
  const answer = async (session: string, asked: number): Promise<void> => {
    messages[session]!.push({ role: 'assistant', content: ' often' });
    const response = [chatAnswer([...encode(' of'), ...encode('ten'), endOfTurn])];
    const part = { request: null, isStream: false, isLast: true, isAwaited: false, expertsKey: null };
    assert.equal(await captures.end({ ...part, id: asked, answer: response, facts }), null);
  };
  const turns = async (session: string): Promise<Turn[]> => {
    await writer.flush();
    return turnsIn(writer.store, session);
  };
  const samples = (session: string) => chatSamples({ session, tenant: '', maxTokens: 0, metadata: {} });
  return { ask, answer, turns, samples, drop: (asked: number) => captures.drop(asked) };
}

test('a session that could not be read when a turn was asked has that turn, and is continued exactly', async (t) => {
  let isAway = false;
  class AwayStore extends MemoryStore {
    override get(id: string): Turn | null {
      if (isAway) throw new Error('no connection');
      return super.get(id);
    }
  }
  const store = new AwayStore(1_000_000);
  const messages = {};
  const before = await oftenIn(t, { store }, messages);
  await before.answer('s', await before.ask('s', 'One?'));
  await before.turns('s');
  // The router is started again.
  const { ask, answer, turns } = await oftenIn(t, { store }, messages);
  isAway = true;
  const asked = await ask('s', 'Two?');
  isAway = false;
  await answer('s', asked);
  await answer('s', await ask('s', 'Three?'));
  const [, lost, next] = await turns('s');
  assert.deepEqual(lost!.drift, { kind: 'lost', at: 0 });
  assert.deepEqual([next!.parent, next!.keeps, next!.drift], [lost!.id, lost!.ids.length, null]);
});

test('a session that does not fit in memory beside requests in flight has the turn that was asked, and is continued exactly', async (t) => {
  const { ask, answer, turns, drop } = await oftenIn(t, { memoryBytes: 4_000 });
  const others = [];
  for (let i = 0; i < 4; i++) others.push(await ask(`other ${i}`, 'Go.'));
  const asked = await ask('s', 'One?');
  for (const each of others) drop(each);
  await answer('s', asked);
  await answer('s', await ask('s', 'Two?'));
  const [first, next] = await turns('s');
  assert.deepEqual([next!.parent, next!.keeps, next!.drift], [first!.id, first!.ids.length, null]);
});

test('there are no samples of a session while the store lacks turns of it', async (t) => {
  let isFull = false;
  t.after(() => (isFull = false));
  class FullStore extends MemoryStore {
    override put(turns: readonly Turn[]): void {
      if (isFull) throw new Error('database or disk is full');
      super.put(turns);
    }
  }
  const { ask, answer, turns, samples } = await oftenIn(t, { store: new FullStore(1_000_000) });
  await answer('s', await ask('s', 'One?'));
  assert.equal((await turns('s')).length, 1);
  isFull = true;
  await answer('s', await ask('s', 'Two?'));
  await assert.rejects(samples('s'), { message: "turns of session 's' are not stored yet: database or disk is full" });
  isFull = false;
  assert.ok(typeof (await samples('other')) !== 'string');
  await until('the store has them', async () => typeof (await samples('s').catch(() => '')) !== 'string');
});

test('the choices of a response are loaded with one look at it', async (t) => {
  const choices = 8;
  const { call, chatOpen, captures, letGo, writer } = await callsOf(t);
  const name = { session: 's', tenant: '' };
  const ask = async (id: number, messages: readonly object[], n: number): Promise<void> => {
    const body = Buffer.from(JSON.stringify({ messages, stream: true, max_tokens: 8, n }));
    const opened = await chatOpen({ ...call, ...name, engine: 'vllm', body, id, isInPath: false });
    assert.equal(opened.problem, null);
  };
  const question = { role: 'user', content: 'Go.' };
  const each = Array.from({ length: choices }, (_, index) => index);
  const events = each.map((index) => {
    const [text, ids] = [` of${' ten'.repeat(index)}`, encode(` of${' ten'.repeat(index)}`)];
    return `data: ${JSON.stringify({ choices: [{ index, text, token_ids: ids, finish_reason: 'length' }] })}\n\n`;
  });
  await ask(1, [question], choices);
  const answer = [Buffer.from(`${events.join('')}data: [DONE]\n\n`)];
  const part = { request: null, isStream: true, isLast: true, isAwaited: false, expertsKey: null };
  assert.equal(await captures.end({ ...part, id: 1, answer, facts }), null);
  await writer.flush();
  assert.equal(letGo('s', ''), true);
  const read = t.mock.method(ChoiceDelta.prototype, 'delta').mock;
  await ask(2, [question, { role: 'assistant', content: ' of ten ten' }, question], 1);
  assert.equal(read.callCount(), choices);
  captures.drop(2);
});
