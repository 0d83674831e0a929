import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { turnOf, turnsIn } from '../../../../test/harness/turns.ts';
import type { Turn } from '../../shared/turn.ts';
import { MemoryStore } from './memory.ts';
import { packed } from './packed-body.ts';
import { PackingStore } from './packing-store.ts';

/** A chat's request after so many turns, of about 1 KB each. */
const requestOf = (turns: number): Buffer =>
  Buffer.from(`{"m":["${'x y z '.repeat(170)}${[...Array(turns).keys()].join()}"]}`);

/** A store whose failures are the test's. */
class FickleStore extends MemoryStore {
  isFull = false;

  override put(turns: readonly Turn[]): void {
    if (this.isFull) throw new Error('database or disk is full');
    super.put(turns);
  }
}

const textOf = (turn: Turn | null): string => Buffer.from(turn!.request!).toString();

test('a turn that the store did not take is no base of the next one', async () => {
  const inner = new FickleStore(1e9);
  const store = new PackingStore(inner);
  const first = turnOf({ request: requestOf(1) });
  inner.isFull = true;
  await assert.rejects(store.put([first]), /full/);
  inner.isFull = false;
  const second = turnOf({ parent: first.id, request: requestOf(2) });
  await store.put([second]);
  assert.equal(textOf(await store.get(second.id)), String(requestOf(2)));
});

test('a turn of a session that was evicted or removed meanwhile is no base of the next one', async () => {
  const inner = new MemoryStore(20_000);
  const store = new PackingStore(inner);
  const evicted: string[] = [];
  store.onEvicted = (session) => void evicted.push(session);
  const put = async (session: string, more: Partial<Turn> = {}): Promise<Turn> => {
    const turn = turnOf({ session, request: requestOf(1), ...more });
    await store.put([turn]);
    return turn;
  };
  const first = await put('a');
  while (!evicted.includes('a')) await put(`other ${evicted.length}`);
  const second = await put('a', { parent: first.id });
  assert.equal(textOf(await store.get(second.id)), String(requestOf(1)));
  await store.removeSession('a');
  const third = await put('a', { parent: second.id });
  assert.equal(textOf(await store.get(third.id)), String(requestOf(1)));
});

test('a turn whose base was removed by another router has no request, and the others have theirs', async () => {
  const inner = new MemoryStore(1e9);
  const first = turnOf({ request: requestOf(1) });
  const second = turnOf({ parent: first.id, request: requestOf(2) });
  await new PackingStore(inner).put([first, second]);
  const packed = inner.get(second.id)!;
  inner.removeSession('session');
  inner.put([packed]);
  const [left] = await turnsIn(new PackingStore(inner));
  assert.deepEqual([left!.id, left!.request], [second.id, null]);
});

test('turns of one call stay readable when the first of them is put again with more of its answer', async () => {
  const store = new PackingStore(new MemoryStore(1e9));
  const request = requestOf(1);
  const answer = Buffer.from('so far '.repeat(50));
  const [first, second] = [turnOf({ request, answer }), turnOf({ request, answer })];
  await store.put([first, second]);
  const whole = Buffer.from('to the end '.repeat(90));
  await store.put([{ ...first, answer: whole }]);
  await store.put([{ ...first, answer: whole }]);
  for (const [turn, own] of [
    [first, whole],
    [second, answer],
  ] as const) {
    const read = await store.get(turn.id);
    assert.deepEqual([textOf(read), Buffer.from(read!.answer!).toString()], [String(request), String(own)]);
  }
});

test('the turns of several choices stay readable when all of them are put again', async () => {
  const inner = new MemoryStore(1e9);
  const store = new PackingStore(inner);
  const earlier = turnOf({ request: requestOf(1) });
  const request = requestOf(2);
  const choices = [1, 2, 3].map(() => turnOf({ parent: earlier.id, request, answer: Buffer.from('so far') }));
  const whole = choices.map((turn) => ({ ...turn, answer: Buffer.from('to the end') }));
  await store.put([earlier, ...choices]);
  await store.put(whole);
  await store.put(whole.toReversed());
  const next = turnOf({ parent: choices[0]!.id, request: requestOf(3) });
  await store.put([next]);
  // Without the bodies that the first store remembers.
  const found = await turnsIn(new PackingStore(inner));
  assert.deepEqual(found.map(textOf), [requestOf(1), request, request, request, requestOf(3)].map(String));
});

test('turns whose bases lead back to them have no request, and say so; those after them are stored whole', async () => {
  const inner = new MemoryStore(1e9);
  const body = requestOf(1);
  const ring = [turnOf(), turnOf(), turnOf()];
  inner.put(ring.map((turn, i) => ({ ...turn, request: packed(body, { id: ring[(i + 2) % 3]!.id, depth: i, body }) })));
  const store = new PackingStore(inner);
  const next = turnOf({ parent: ring[0]!.id, request: requestOf(2) });
  await store.put([next]);
  const found = await turnsIn(store);
  assert.deepEqual(
    found.map(({ request, unreadable }) => [request === null, unreadable]),
    [...ring.map(() => [true, ['request']]), [false, undefined]],
  );
  assert.equal(textOf(found[3]!), String(requestOf(2)));
});

test('a turn is read without its bodies where they are not needed, but not one whose tokens are not known', async () => {
  const store = new PackingStore(new MemoryStore(1e9));
  const bodies = { request: requestOf(1), answer: requestOf(2) };
  const [exact, text] = [turnOf(bodies), turnOf({ ...bodies, isExact: false })];
  await store.put([exact, text]);
  const [bare, whole] = [await store.get(exact.id, false), await store.get(text.id, false)];
  assert.deepEqual([bare!.request, bare!.answer, bare!.ids], [null, null, exact.ids]);
  assert.deepEqual([whole!.request, whole!.answer], [bodies.request, bodies.answer]);
});

test('a response that choices share takes the memory of one', async () => {
  const inner = new MemoryStore(4_000_000);
  const store = new PackingStore(inner);
  const answer = randomBytes(1_000_000);
  const request = Buffer.from('{"n":16}');
  const turns = Array.from({ length: 16 }, () => turnOf({ session: 's', request, answer }));
  await store.put(turns);
  const { turns: count, bytes } = inner.counts();
  assert.deepEqual([count, bytes > 1_000_000, bytes < 1_200_000], [16, true, true], `${bytes} bytes`);
  // Each choice is put again with more of the response, one after the other.
  const more = randomBytes(1_000_000);
  for (const turn of turns) await store.put([{ ...turn, answer: more }]);
  assert.ok(Math.abs(inner.counts().bytes - bytes) < 20_000, `${inner.counts().bytes} bytes`);
  assert.deepEqual((await store.get(turns[3]!.id))!.answer, more);
  await store.removeSession('s');
  assert.equal(inner.counts().bytes, 0);
});
