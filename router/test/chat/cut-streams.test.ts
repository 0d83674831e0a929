import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { decode, encode, endOfTurn } from '../../../simulator/src/tokens/tokenizer.ts';
import { type ChatMessage, eventsOf, startChatScene } from '../harness/chat-scene.ts';
import { type SentMessage, chatAnswer, startChatThread } from '../harness/chat-thread.ts';
import { untilIdle } from '../harness/router.ts';
import { temporaryFolder } from '../harness/temporary-folder.ts';

/** Not how the tokenizer would spell its text: " of" and "ten" are one token of it. */
const SAMPLED = [' of', 'ten', ' the', ' often', ' é 漢', ' of', 'ten', '!'].flatMap((text) => encode(text));
const TEXT = decode(SAMPLED, false);
const ASKED = [{ role: 'user', content: 'Go.' }];

/** The events that came of a stream that broke off: an event a token, each with the characters that are whole with it. */
function brokenStream(ids: readonly number[]): Buffer {
  let sent = 0;
  const events = ids.map((id, i) => {
    const text = decode(ids.slice(0, i + 1), false);
    const content = TEXT.startsWith(text) ? text.slice(sent) : '';
    sent += content.length;
    return `data: ${JSON.stringify({ choices: [{ index: 0, delta: { content }, token_ids: [id] }] })}\n\n`;
  });
  return Buffer.from(events.join(''));
}

const goOn = (got: string): SentMessage[] => [
  ...ASKED,
  { role: 'assistant', content: got },
  { role: 'user', content: 'Go on.' },
];

/** What stands after an answer in the next prompt. */
const CLOSING = encode('<|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n');

async function session(t: TestContext, answer: 'broken' | 'whole') {
  const thread = await startChatThread(t, { dataDir: temporaryFolder(t), storeMemoryBytes: 65_536 });
  const { id, ids } = await thread.open('a', ASKED, { stream: answer === 'broken' });
  if (answer === 'broken') await thread.close(id, brokenStream(SAMPLED), true);
  else await thread.close(id, chatAnswer([...SAMPLED, endOfTurn]));
  const drifts = async () => (await thread.turns('a')).map(({ drift }) => drift);
  /** Asks in so many others that the session is in the store alone. */
  const forget = async (): Promise<void> => {
    for (let i = 0; i < 40; i++) await thread.turn(`other ${i}`, ASKED, encode('Yes. '.repeat(100)));
  };
  return { ...thread, ids, drifts, forget };
}

for (const answer of ['broken', 'whole'] as const) {
  test(`${answer}: a client goes on from as much as it got of an answer: from the sampled ids, at every token`, async (t) => {
    const { turn, turns, ids, drifts } = await session(t, answer);
    let count = 0;
    for (let n = 0; n <= SAMPLED.length; n++) {
      const got = decode(SAMPLED.slice(0, n), false);
      // Half a character: no client has it.
      if (!TEXT.startsWith(got)) continue;
      const made = await turn('a', goOn(got), encode('Yes.'));
      // An ended answer that came whole is ended by its own stop token.
      const isEnded = answer === 'whole' && n === SAMPLED.length;
      const closing = isEnded ? [endOfTurn, ...CLOSING.slice(1)] : CLOSING;
      assert.deepEqual(made.ids, [...ids, ...SAMPLED.slice(0, n), ...closing], `after ${n} tokens`);
      count++;
    }
    assert.ok(count > 10);
    assert.ok((await drifts()).every((drift) => drift === null));
    const [first, ...others] = await turns('a');
    for (const { parent, loss_mask: mask } of others) {
      assert.equal(parent, first!.id);
      assert.equal(
        mask.indexOf(1),
        mask.length - encode('Yes.').length - 1,
        'what was sampled before is in its parent',
      );
    }
  });
}

/** What came of a stream whose ids are ahead of its text, and how many of the tokens a client has. */
const ahead: Record<string, { texts: [text: string, token: string][]; whole: number; rest: string }> = {
  'half a character': {
    texts: [
      ['ab', 'ab'],
      ['', '漢'],
    ],
    whole: encode('ab').length,
    rest: '',
  },
  'text that may begin a stop string': {
    texts: [
      ['Hello', 'Hello'],
      ['', ' STO'],
    ],
    whole: encode('Hello').length,
    rest: '',
  },
  'a part of a token that may begin a stop string': {
    texts: [
      ['Hello o', 'Hello'],
      ['', ' often'],
    ],
    whole: encode('Hello').length,
    rest: ' o',
  },
};

for (const [what, { texts, whole, rest }] of Object.entries(ahead)) {
  test(`ids are ahead of the text by ${what}: a client goes on from the tokens whose text it got, also when it is read from the store`, async (t) => {
    const thread = await startChatThread(t, { dataDir: temporaryFolder(t), storeMemoryBytes: 65_536 });
    const { id, ids } = await thread.open('a', ASKED, { stream: true });
    // Of a character its first byte.
    const tokens = texts.map(([, token]) => (token === '漢' ? encode(token).slice(0, 1) : encode(token)));
    const events = texts.map(([content], i) => ({ choices: [{ index: 0, delta: { content }, token_ids: tokens[i] }] }));
    await thread.close(id, Buffer.from(events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('')), true);
    const got = texts.map(([text]) => text).join('');
    const next = await thread.turn('a', goOn(got), encode('Yes.'));
    const kept = [...ids, ...tokens.flat().slice(0, whole)];
    assert.deepEqual(next.ids, [...kept, ...encode(rest), ...CLOSING]);
    const drift = rest === '' ? null : { kind: 'text', at: kept.length };
    const asked = [...next.messages, { role: 'user', content: 'Go on.' }];
    assert.deepEqual(
      (await thread.turn('a', asked, encode('Yes.'))).ids.slice(0, next.trajectory.length),
      next.trajectory,
    );
    for (let i = 0; i < 40; i++) await thread.turn(`other ${i}`, ASKED, encode('Yes. '.repeat(100)));
    assert.deepEqual(
      (await thread.turn('a', asked, encode('Yes.'))).ids.slice(0, next.trajectory.length),
      next.trajectory,
    );
    assert.deepEqual((await thread.turn('a', goOn(got), encode('Yes.'))).ids, next.ids);
    const turns = (await thread.turns('a')) as readonly { drift: unknown; ambiguous?: boolean }[];
    assert.deepEqual(
      turns.map(({ drift, ambiguous = false }) => [drift, ambiguous]),
      [null, drift, null, null, drift].map((each) => [each, false]),
    );
  });
}

test('a text that ends within a token is gone on with after the last whole token, and flagged', async (t) => {
  const { turn, ids, drifts } = await session(t, 'broken');
  const { ids: asked } = await turn('a', goOn(' often the oft'), encode('Yes.'));
  const tokens = 3;
  assert.deepEqual(asked, [...ids, ...SAMPLED.slice(0, tokens), ...encode(' oft'), ...CLOSING]);
  assert.deepEqual(await drifts(), [null, { kind: 'text', at: ids.length + tokens }]);
});

test('text of a truncated stream beyond the known ids is encoded after them, and flagged', async (t) => {
  const { turn, ids, drifts } = await session(t, 'broken');
  const { ids: asked } = await turn('a', goOn(`${TEXT} Over`), encode('Yes.'));
  assert.deepEqual(asked.slice(0, ids.length + SAMPLED.length), [...ids, ...SAMPLED]);
  assert.equal(decode(asked.slice(ids.length + SAMPLED.length)), ` Over${decode(CLOSING)}`);
  assert.deepEqual(await drifts(), [null, { kind: 'text', at: ids.length + SAMPLED.length }]);
});

test('an assistant message that was not sampled here is flagged; the turn after it is not', async (t) => {
  const { turn, ids, drifts } = await session(t, 'whole');
  const second = await turn('a', goOn('Something else.'), encode('Yes.'));
  await turn('a', [...second.messages, { role: 'user', content: 'More.' }], encode('No.'));
  const at = (await drifts())[1]!.at;
  assert.ok(at <= ids.length);
  assert.deepEqual(await drifts(), [null, { kind: 'text', at }, null]);
});

test('what went on from a part of an answer goes on, also after the session was read from the store', async (t) => {
  const { turn, drifts, forget } = await session(t, 'broken');
  const got = decode(SAMPLED.slice(0, 3), false);
  const second = await turn('a', goOn(got), encode('Yes.'));
  const more = [...second.messages, { role: 'user', content: 'More.' }];
  const third = await turn('a', more, encode('No.'));
  assert.deepEqual(third.ids.slice(0, second.trajectory.length), second.trajectory);
  await forget();
  const again = await turn('a', more, encode('Maybe.'));
  assert.deepEqual(again.ids, third.ids);
  assert.deepEqual(await drifts(), [null, null, null, null]);
});

test('a client that goes on before its leaving is known gets the sampled ids, and is flagged where that stays unknown', async (t) => {
  const { open, close, turns } = await startChatThread(t);
  const { id, ids } = await open('a', ASKED, { stream: true });
  const early = open('a', goOn(' often'));
  await close(id, brokenStream(SAMPLED), true);
  const second = await early;
  assert.deepEqual(second.ids, [...ids, ...SAMPLED.slice(0, 2), ...CLOSING]);
  await close(second.id, chatAnswer([...encode('Yes.'), endOfTurn]));

  const other = await open('a', [{ role: 'user', content: 'Other.' }], { stream: true });
  const [, ...rest] = goOn(' often');
  const third = await open('a', [{ role: 'user', content: 'Other.' }, ...rest]);
  await close(third.id, chatAnswer([...encode('No.'), endOfTurn]));
  await close(other.id, brokenStream(SAMPLED), true);
  const drifts = (await turns('a')).map(({ drift }) => drift?.kind ?? null);
  assert.deepEqual(drifts, [null, null, 'text', null]);
});

for (const kind of ['sglang', 'vllm'] as const) {
  test(`${kind}: a client that closes a stream goes on from the sampled tokens whose text it got`, async (t) => {
    const scene = await startChatScene(t, { kind, sim: { timeScale: 1, meanOutputTokens: 0 } });
    for (let i = 0; i < 8; i++) {
      const own = await scene.begin();
      const path = `${scene.router.url}/sessions/${own}/v1/chat/completions`;
      const messages: ChatMessage[] = [{ role: 'user', content: `a${i}` }];
      const body = JSON.stringify({ model: 'sim', messages, stream: true, max_tokens: 500, temperature: 1 });
      const stop = new AbortController();
      let text = '';
      const content = (): string =>
        eventsOf(text.slice(0, text.lastIndexOf('\n\n') + 2))
          .flatMap(({ choices }) => choices as { delta?: { content?: string } }[])
          .map(({ delta }) => delta?.content ?? '')
          .join('');
      const response = await fetch(path, { method: 'POST', body, signal: stop.signal });
      for await (const part of response.body!) {
        text += Buffer.from(part as Uint8Array).toString('latin1');
        if (Buffer.from(content(), 'latin1').toString().length > 10 * (i + 1)) break;
      }
      stop.abort();
      const got = Buffer.from(content(), 'latin1').toString();
      await scene.say(own, [...messages, { role: 'assistant', content: got }, { role: 'user', content: 'b' }], {
        max_tokens: 3,
      });
      await untilIdle(scene.router);
      const { metadata } = await scene.record(own);
      const { inputIds } = scene.log.at(-1)!;
      const cut = scene.log.at(-2)!;
      const closing = encode('<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n');
      const kept = inputIds.length - cut.inputIds.length - closing.length;
      assert.deepEqual(inputIds, [...cut.inputIds, ...cut.outputIds.slice(0, kept), ...closing]);
      assert.equal(decode(cut.outputIds.slice(0, kept), false), got);
      assert.deepEqual(
        metadata.tree.turns.map(({ drift }) => drift),
        [null, null],
      );
    }
  });
}
