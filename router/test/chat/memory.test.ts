import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encode, endOfTurn } from '../../../simulator/src/tokens/tokenizer.ts';
import { type SentMessage, chatAnswer, startChatThread } from '../harness/chat-thread.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';
import { often } from '../harness/often.ts';

interface Known {
  readonly messages: readonly SentMessage[];
  readonly trajectory: readonly number[];
}

const SESSIONS = 2_000;
const TURNS = often(2, 3);
/** Of so many sessions one goes on after its first turn. */
const EACH = often(4, 1);
const TOKENS = 2_000;

test(`2,000 sessions with a turn of 2,000 tokens each go on exactly at the default limits: one of ${EACH}, up to ${TURNS} turns`, async (t) => {
  const { open, close, turns: turnsOf, calls } = await startChatThread(t);
  const word = encode(' the')[0]!;
  const sampled = [...Array.from({ length: TOKENS - 1 }, () => word), endOfTurn];
  const answer = chatAnswer(sampled);
  const content = ' the'.repeat(TOKENS - 1);
  const known = new Map<number, Known>();
  let encodedAnew = 0;
  for (let n = 0; n < TURNS; n++) {
    for (let s = 0; s < SESSIONS; s += n === 0 ? 1 : EACH) {
      const before = known.get(s) ?? { messages: [], trajectory: [] };
      const messages = [...before.messages, { role: 'user', content: `${s}.${n}` }];
      const { id, ids } = await open(`s${s}`, messages);
      await close(id, answer);
      if (before.trajectory.some((own, i) => ids[i] !== own)) encodedAnew++;
      known.set(s, {
        messages: [...messages, { role: 'assistant', content }],
        trajectory: [...ids, ...sampled],
      });
    }
  }
  assert.equal(encodedAnew, 0);
  const { turns, drifted } = calls.chatStats();
  assert.deepEqual({ turns, drifted }, { turns: SESSIONS + ((TURNS - 1) * SESSIONS) / EACH, drifted: 0 });
  await turnsOf('s0');
  assert.equal((await calls.storeState()).evicted, 0);
});

/** More sessions than fit, each with one turn. @returns what the client of each knows */
async function fill(turn: Awaited<ReturnType<typeof startChatThread>>['turn'], count: number): Promise<Known[]> {
  const known: Known[] = [];
  for (let s = 0; s < count; s++) known.push(await turn(`s${s}`, [{ role: 'user', content: 'Go.' }], encode(LONG)));
  return known;
}

const LONG = 'The turn is long enough to count. '.repeat(100);
const next = ({ messages }: Known): SentMessage[] => [...messages, { role: 'user', content: 'Go on.' }];

test('a session whose turns were evicted goes on with the drift "lost", once', async (t) => {
  const { turn, turns, calls } = await startChatThread(t, { storeMemoryBytes: 65_536 });
  const [first] = await fill(turn, 40);
  await turns('s0');
  const { evicted, evictedLive } = await calls.storeState();
  assert.ok(evicted > 0);
  assert.equal(evictedLive, evicted, 'each had one turn, and no session was over');
  const second = await turn('s0', next(first!), encode('Yes.'));
  const third = await turn('s0', next(second), encode('No.'));
  assert.deepEqual(third.ids.slice(0, second.trajectory.length), second.trajectory);
  const made = (await turns('s0')).map(({ parent, drift }) => ({ isFirst: parent === null, drift }));
  assert.deepEqual(made, [
    { isFirst: true, drift: { kind: 'lost', at: 0 } },
    { isFirst: false, drift: null },
  ]);
});

test('a new session with assistant messages that were not sampled is not lost, nor is one that starts again after its end', async (t) => {
  const { turn, turns } = await startChatThread(t, { storeMemoryBytes: 65_536 });
  const examples = [
    { role: 'user', content: 'One?' },
    { role: 'assistant', content: 'Two.' },
    { role: 'user', content: 'Three?' },
  ];
  await turn('new', examples, encode('Four.'));
  assert.deepEqual(
    (await turns('new')).map(({ drift }) => drift),
    [null],
  );
  await fill(turn, 40);
  await turn('s0', [{ role: 'user', content: 'Anew.' }], encode('Yes.'));
  assert.deepEqual(
    (await turns('s0')).map(({ drift }) => drift),
    [null],
  );
});

test('sessions that memory has no room for come back exactly from the data folder', async (t) => {
  const { turn, turns } = await startChatThread(t, { storeMemoryBytes: 65_536, dataDir: temporaryFolder(t) });
  for (const [s, known] of (await fill(turn, 40)).entries()) {
    const { ids } = await turn(`s${s}`, next(known), encode('Yes.'));
    assert.deepEqual(ids.slice(0, known.trajectory.length), known.trajectory);
    assert.deepEqual(
      (await turns(`s${s}`)).map(({ drift }) => drift),
      [null, null],
    );
  }
});
