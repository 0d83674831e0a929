import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Exchange, type Road } from '../exchange.ts';
import { RequestBody, RetryBudget } from '../wire/request-body.ts';
import { RequestHead } from '../wire/request-head.ts';
import type { Sink } from '../wire/sink.ts';
import { BodyReader } from './body-reader.ts';
import { type BodyFacts, type BodyQuestion, BodyScan, nothingSaid } from './body-scan.ts';
import { orders } from './keys.ts';
import { ScanThread } from './scan-thread.ts';

const question: BodyQuestion = {
  places: orders.turnout([]).filter((place) => place.in === 'body'),
  wantsContentKey: true,
  wantsPrompt: true,
};

const story = 'Once upon a time there was a \\"router\\" that lost nothing.\\n';
const bodies: readonly string[] = [
  JSON.stringify({ model: 'm', prompt: story.repeat(20_000), session_id: 's1' }),
  JSON.stringify({ input_ids: Array.from({ length: 200_000 }, (_, i) => i), user: 'u' }),
  JSON.stringify({ messages: [{ role: 'user', content: story.repeat(20_000) }] }),
  `{"x":${'['.repeat(1_000_000)}`,
  'no JSON'.repeat(100_000),
];

/** As the wire would bring it. */
function piecesOf(text: string, size = 65_536): Buffer[] {
  const bytes = Buffer.from(text);
  return Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) => bytes.subarray(i * size, (i + 1) * size));
}

const always = (): boolean => true;

test('the thread finds what would be found here', async () => {
  const thread = new ScanThread(4_000_000);
  const answers = await Promise.all(
    bodies.map((text) => new Promise<BodyFacts>((done) => thread.scan(piecesOf(text), question, always, done))),
  );
  const scan = new BodyScan();
  for (const [i, text] of bodies.entries()) assert.deepEqual(answers[i], scan.scan(Buffer.from(text), question));
  assert.equal(answers[0]!.key!.value, 's1');
  thread.close();
});

test('who is not wanted any more is left out, the next one gets its turn', async () => {
  const thread = new ScanThread(4_000_000);
  const [first, second] = bodies.map((text) => piecesOf(text));
  const done: string[] = [];
  let isFirstWanted = true;
  thread.scan(
    first!,
    question,
    () => isFirstWanted,
    () => done.push('first'),
  );
  isFirstWanted = false;
  await new Promise<void>((resolve) => {
    thread.scan(second!, question, always, () => {
      done.push('second');
      resolve();
    });
  });
  assert.deepEqual(done, ['second']);
  thread.close();
});

test('a thread that fails costs one body its facts', async () => {
  const thread = new ScanThread(4_000_000);
  const ask = (of: BodyQuestion) =>
    new Promise<BodyFacts>((done) => thread.scan(piecesOf(bodies[0]!), of, always, done));
  assert.equal(await ask({ ...question, places: null as never }), nothingSaid);
  assert.equal((await ask(question)).key!.value, 's1');
  thread.close();
});

/** @returns the exchange and whether its body was read at once. */
async function readWhole(text: string): Promise<{ x: Exchange; wasAtOnce: boolean }> {
  const head = new RequestHead();
  const bytes = Buffer.from('POST /generate HTTP/1.1\r\nhost: h\r\nx-user-id: tenant\r\n\r\n');
  head.read(bytes, 0, bytes.length);
  const body = new RequestBody(new RetryBudget(1e9), () => {});
  for (const piece of piecesOf(text)) body.push(piece);
  body.finish();
  const x = new Exchange({} as Road, head, body, {} as Sink, 0);
  const reader = new BodyReader(orders.turnout([]));
  assert.equal(reader.readHead(x), false);
  let isDone = false;
  let wasAtOnce = true;
  await new Promise<void>((resolve) => {
    reader.readBody(x, true, () => {
      isDone = true;
      resolve();
    });
    wasAtOnce = isDone;
  });
  reader.close();
  return { x, wasAtOnce };
}

test('large bodies are read by the thread, small ones at once, huge ones not at all', async () => {
  const bodyOf = (bytes: number, key: string): string => `{${key}"prompt":"${'p'.repeat(bytes)}"}`;
  for (const [bytes, atOnce] of [
    [250_000, true],
    [300_000, false],
    [16_000_000, false],
    [17_000_000, true],
  ] as const) {
    const withKey = await readWhole(bodyOf(bytes, '"session_id":"s",'));
    assert.equal(withKey.wasAtOnce, atOnce);
    const isRead = bytes < 17_000_000;
    assert.equal(withKey.x.key!.source, isRead ? 'body:session_id' : 'header:x-user-id');
    assert.equal(withKey.x.prompt?.bytes, isRead ? bytes : undefined);
    // A tenant's header comes after the body's sessions, before its users.
    assert.equal((await readWhole(bodyOf(bytes, '"user":"u",'))).x.key!.source, 'header:x-user-id');
  }
});
