import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { until } from '../../../../test/harness/within.ts';
import type { FeedOptions } from '../../shared/feed.ts';
import { feedOptions } from '../../tap/feed/options.ts';
import { recorderCalls } from '../recorder-calls.ts';
import { MemoryStore } from '../store/memory.ts';

const bytes = (value: unknown): Uint8Array => new Uint8Array(Buffer.from(JSON.stringify(value)));

/** The calls of a recorder thread with a feed, and the responses of its sessions. A call of `/v1/messages` needs no tokenizer. */
async function scene(t: TestContext, storeMemoryBytes = 1e9) {
  const calls = await recorderCalls({ tokenizerPath: null, dataDir: null, store: 'memory', storeMemoryBytes });
  t.after(() => calls.close());
  const options = feedOptions.parse({ groupSize: 1, dropFlags: [] }) as FeedOptions;
  const asked = { before: null, isProof: false, stale: null, ticket: null, changes: [] };
  const said = { type: 'message', role: 'assistant', content: [{ type: 'text', text: 'a' }] };
  const usage = { input_tokens: 1, output_tokens: 1 };
  const ended = (session: string, more: Partial<Parameters<typeof calls.captureEnded>[0]>) =>
    calls.captureEnded({
      kind: 'call',
      id: 0,
      request: bytes({ model: 'm', messages: [] }),
      isStream: false,
      isLast: true,
      answer: [bytes({ ...said, stop_reason: 'end_turn', usage })],
      expertsKey: null,
      facts: {
        session,
        group: session,
        tenant: '',
        model: 'm',
        worker: 'w',
        path: '/v1/messages',
        startedAtMs: 1_700_000_000_000,
        ttftMs: null,
        generationMs: 5,
        asked,
      },
      isAwaited: false,
      sessionEnd: null,
      ...more,
    });
  return {
    calls,
    begin: () => calls.feedBegin({ options, router: 'r', isAgain: false }),
    admit: (session: string) => calls.feedAdmit({ tenant: '', session, group: session, size: null, isAgain: false }),
    turn: (session: string, words = 'a') =>
      ended(session, { request: bytes({ model: 'm', messages: [{ role: 'user', content: words }] }) }),
    ended,
    finish: (session: string) => calls.sessionEnded({ session, tenant: '', reward: 1 }),
    outcome() {
      const { ready, droppedGroups } = calls.feedStats();
      return { ready, droppedGroups };
    },
  };
}

const INCOMPLETE = { ready: 0, droppedGroups: { incomplete: 1 } };

test('a session whose last turn the store did not take is not delivered', async (t) => {
  const put = MemoryStore.prototype.put;
  t.mock.method(MemoryStore.prototype, 'put', function (this: MemoryStore, turns: Parameters<typeof put>[0]) {
    if (turns.some(({ ids, request }) => ids.length === 0 && request!.length > 20_000)) throw new Error('too long');
    put.call(this, turns);
  });
  const { calls, begin, admit, turn, finish, outcome } = await scene(t);
  await begin();
  await admit('s');
  await turn('s');
  await turn('s', Buffer.from(Array.from({ length: 30_000 }, () => Math.random() * 256)).toString('hex'));
  await turn('other');
  await until('the turn is dropped', async () => (await calls.storeState()).dropped === 1, 10_000);
  await finish('s');
  assert.deepEqual(outcome(), INCOMPLETE);
});

for (const when of ['before the feed has begun', 'while its group waits'])
  test(`a session with a response whose request only an earlier thread knew is not delivered: ${when}`, async (t) => {
    const { begin, admit, turn, ended, finish, outcome } = await scene(t);
    const lose = () => ended('s', { kind: 'text', id: 77, request: null, answer: [bytes({ text: 'x' })] });
    if (when !== 'while its group waits') await lose();
    await begin();
    await admit('s');
    await turn('s');
    if (when === 'while its group waits') await lose();
    await finish('s');
    assert.deepEqual(outcome(), INCOMPLETE);
  });

test('a session that lost turns with an earlier thread is not delivered, also if it joins its group later', async (t) => {
  const { calls, begin, turn, finish, outcome } = await scene(t);
  await begin();
  calls.turnsLost([{ session: 's', tenant: '' }]);
  // The request had its key in the body: the session joins by this turn.
  await calls.feedAdmit({ tenant: '', session: '', group: 's', size: 1, isAgain: false });
  await turn('s');
  await finish('s');
  assert.deepEqual(outcome(), INCOMPLETE);
});

test('a session with a response that could not be read is not delivered', async (t) => {
  const { begin, admit, turn, ended, finish, outcome } = await scene(t);
  await begin();
  await admit('s');
  await turn('s');
  const { problem } = await ended('s', { answer: [Buffer.from('{')] });
  assert.notEqual(problem, null);
  await finish('s');
  assert.deepEqual(outcome(), INCOMPLETE);
});

test('a session whose first turns were evicted is not delivered', async (t) => {
  const { calls, begin, admit, turn, finish, outcome } = await scene(t, 20_000);
  await begin();
  await admit('s');
  await turn('s');
  for (let i = 0; (await calls.storeState()).evicted === 0; i++) await turn(`other ${i}`);
  await turn('s');
  await finish('s');
  assert.deepEqual(outcome(), INCOMPLETE);
});

test('a session that is over leaves its name to another one', async (t) => {
  const { calls, begin, admit, turn, finish, outcome } = await scene(t);
  await begin();
  calls.turnsLost([{ session: 's', tenant: '' }]);
  await finish('s');
  await admit('s');
  await turn('s');
  await finish('s');
  assert.deepEqual(outcome(), { ready: 1, droppedGroups: {} });
});
