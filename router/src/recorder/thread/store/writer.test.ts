import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { turnOf } from '../../../../test/harness/turns.ts';
import { until } from '../../../../test/harness/within.ts';
import type { Turn } from '../../shared/turn.ts';
import { MemoryStore } from './memory.ts';
import { TurnWriter } from './writer.ts';

/** A store whose failures are the test's. */
class FickleStore extends MemoryStore {
  readonly batches: number[] = [];
  refuses: (turn: Turn) => boolean = () => false;

  constructor() {
    super(1e9);
  }

  override put(turns: readonly Turn[]): void {
    if (turns.some(this.refuses)) throw new Error('database or disk is full');
    this.batches.push(turns.length);
    super.put(turns);
  }
}

/** The state of a writer that has stored nothing. */
const FRESH = {
  stored: 0,
  dropped: 0,
  pending: 0,
  unknownLogprobs: 0,
  unknownVersions: 0,
  textTurns: 0,
  isFailing: false,
  lastError: null,
};

test('turns are written in batches, and are there after a flush', async () => {
  const store = new FickleStore();
  const writer = new TurnWriter(store);
  for (let i = 0; i < 150; i++) writer.put(turnOf());
  await writer.flush();
  assert.deepEqual(store.batches, [64, 64, 22]);
  assert.deepEqual(writer.state, { ...FRESH, stored: 150 });
  writer.put(turnOf());
  await until('it is written without a flush', () => store.batches.length === 4);
  await writer.close();
});

test('a store that fails gets what it missed when it is back', async () => {
  const store = new FickleStore();
  const writer = new TurnWriter(store, 1e9, 5);
  let isFull = true;
  store.refuses = () => isFull;
  const turns = Array.from({ length: 70 }, () => turnOf());
  for (const turn of turns) writer.put(turn);
  await writer.flush();
  await until('it failed', () => writer.state.isFailing);
  assert.deepEqual(writer.state.lastError, 'database or disk is full');
  assert.equal(writer.state.pending, 70, 'nothing is lost yet');
  isFull = false;
  await until('all are there', () => store.counts().turns === 70);
  assert.deepEqual(writer.state, { ...FRESH, stored: 70 });
  await writer.close();
});

test('a store that fails after a long write is tried again, also if turns came during that write', async () => {
  const store = new FickleStore();
  const writer = new TurnWriter(store, 1e9, 5);
  const { promise: isAway, reject: away } = Promise.withResolvers<void>();
  const put = store.put.bind(store);
  store.put = () => isAway as unknown as void;
  writer.put(turnOf());
  const flushed = writer.flush();
  writer.put(turnOf());
  // Longer than turns are gathered.
  await delay(80);
  store.put = put;
  away(new Error('no answer'));
  await flushed;
  await until('both are there', () => writer.state.stored === 2);
  assert.equal(writer.state.isFailing, false);
  await writer.close();
});

test('a flush waits for the turns and amendments of its time, however many come during each write', async () => {
  const store = new FickleStore();
  const writer = new TurnWriter(store);
  const put = store.put.bind(store);
  let isBusy = true;
  let puts = 0;
  store.put = async (turns: readonly Turn[]) => {
    for (let i = 0; isBusy && i < 3; i++) writer.put(turnOf());
    await delay(1);
    put(turns);
    puts++;
  };
  const turn = turnOf();
  writer.put(turn);
  const stored = writer.stored();
  await until('it is being written', () => puts > 0);
  assert.equal(await stored, true);
  const versions = [{ version: '7', from: 0, to: 1 }];
  writer.amend({ id: turn.id, versions });
  const late = turnOf();
  writer.put(late);
  const before = puts;
  await writer.flush();
  assert.ok(puts - before <= 3, `${puts - before} writes`);
  assert.notEqual(store.get(late.id), null);
  assert.deepEqual(store.get(turn.id)!.versions, versions);
  isBusy = false;
  await until('all are written', () => writer.state.pending === 0);
  assert.equal(writer.state.stored, store.counts().turns);
  await writer.close();
});

test('what does not fit while it fails is dropped and counted, and nothing else is', async () => {
  const store = new FickleStore();
  const writer = new TurnWriter(store, 5_000, 5);
  let isFull = true;
  store.refuses = () => isFull;
  for (let i = 0; i < 20; i++) writer.put(turnOf());
  assert.deepEqual([writer.state.pending, writer.state.dropped], [20, 0], 'it is not known to fail yet');
  await writer.flush();
  for (let i = 0; i < 5; i++) writer.put(turnOf());
  assert.deepEqual([writer.state.pending, writer.state.dropped], [20, 5]);
  isFull = false;
  await until('the rest is there', () => writer.state.stored === 20);
  assert.equal(writer.state.dropped, 5);
  await writer.close();
});

const MB = 1_048_576;

test('a store that works gets all turns, however many end together', async () => {
  const store = new FickleStore();
  const writer = new TurnWriter(store);
  for (let i = 0; i < 40; i++) writer.put(turnOf({ request: new Uint8Array(2 * MB) }));
  assert.ok(store.batches.length > 0, 'so much is written without delay');
  await writer.flush();
  assert.deepEqual(writer.state, { ...FRESH, stored: 40 });
  await writer.close();
});

test('the request and the response that choices share count once', async () => {
  const store = new FickleStore();
  const writer = new TurnWriter(store, 12 * MB, 5);
  store.refuses = () => true;
  writer.put(turnOf());
  await writer.flush();
  const shared = { request: new Uint8Array(MB), answer: new Uint8Array(5 * MB) };
  for (let i = 0; i < 16; i++) writer.put(turnOf(shared));
  assert.deepEqual([writer.state.pending, writer.state.dropped], [17, 0]);
  writer.put(turnOf({ answer: new Uint8Array(7 * MB) }));
  assert.deepEqual([writer.state.pending, writer.state.dropped], [17, 1], 'other bodies count too');
  store.refuses = () => false;
  await until('all are there', () => writer.state.stored === 17);
  for (let i = 0; i < 2; i++) {
    store.refuses = () => true;
    writer.put(turnOf({ answer: new Uint8Array(12 * MB - 5_000) }));
    await writer.flush();
    assert.deepEqual([writer.state.pending, writer.state.dropped], [1, 1], 'what was written counts no more');
    store.refuses = () => false;
    await until('it is there', () => writer.state.pending === 0);
  }
  await writer.close();
});

test('a later version of a stored turn that does not reach the store leaves the turn and its files', async () => {
  const store = new FickleStore();
  const writer = new TurnWriter(store, 5_000, 5);
  const lost: Turn[] = [];
  writer.onLost = (turn) => void lost.push(turn);
  const turns = [turnOf(), turnOf(), turnOf()];
  for (const turn of turns) writer.put(turn);
  await writer.flush();
  store.refuses = () => true;
  const other = turnOf();
  writer.put(other);
  await writer.flush();
  const [large, refused, last] = turns as [Turn, Turn, Turn];
  writer.put({ ...large, answer: new Uint8Array(6_000) }, large);
  assert.equal(writer.state.dropped, 1);
  writer.put({ ...refused, answer: new Uint8Array(1) }, refused);
  store.refuses = (turn) => turn.answer !== null;
  await until('the other is there, and the refused version is given up', () => {
    writer.put(turnOf());
    return writer.state.dropped === 2;
  });
  await writer.flush();
  store.refuses = () => true;
  writer.put({ ...last, answer: new Uint8Array(1) }, last);
  await writer.close();
  assert.deepEqual([lost, writer.state.dropped], [[], 3]);
});

test('a later version that comes while the earlier one is being written is written after it', async () => {
  for (const isRefused of [false, true]) {
    const written = Promise.withResolvers<void>();
    const store = new FickleStore();
    const put = store.put.bind(store);
    const slowPut = (turns: readonly Turn[]) => written.promise.then(() => put(turns));
    const writer = new TurnWriter(Object.assign(store, { put: slowPut }), 1e9, 5);
    const early = turnOf();
    writer.put(early);
    const flushed = writer.flush();
    const late = { ...early, finishReason: 'length' };
    writer.put(late, early);
    const told = writer.stored();
    store.refuses = () => isRefused;
    written.resolve();
    assert.equal(await told, !isRefused);
    await flushed;
    store.refuses = () => false;
    await until('it is there', () => store.get(early.id)?.finishReason === 'length');
    await until('nothing is pending', () => writer.state.pending === 0);
    assert.deepEqual(writer.state, { ...FRESH, stored: 1 });
    await writer.close();
  }
});

test('one turn that no store takes does not hold up the others', async () => {
  const store = new FickleStore();
  const writer = new TurnWriter(store, 1e9, 5);
  const bad = turnOf();
  store.refuses = (turn) => turn === bad;
  for (const turn of [bad, turnOf(), turnOf()]) writer.put(turn);
  await until('the others are there', () => writer.state.stored === 2);
  assert.deepEqual(writer.state, { ...FRESH, stored: 2, dropped: 1 });
  await writer.close();
});

test('a store that comes back while turns are tried one by one gets all of them', async () => {
  const store = new FickleStore();
  const writer = new TurnWriter(store, 1e9, 5);
  const [first, second, third] = [turnOf(), turnOf(), turnOf()];
  let tries = 0;
  // The batch, the first turn and the second one.
  store.refuses = () => ++tries <= 3;
  for (const turn of [first, second, third]) writer.put(turn);
  await until('nothing is pending', () => writer.state.pending === 0);
  assert.deepEqual(writer.state, { ...FRESH, stored: 3 });
  await writer.close();
});

test('a full disk that still takes a small turn loses no large one', async () => {
  const store = new FickleStore();
  const writer = new TurnWriter(store, 1e9, 5);
  const full = Object.assign(new Error('database or disk is full'), { errcode: 13 });
  let tries = 0;
  let isFull = true;
  const put = store.put.bind(store);
  store.put = (turns) => {
    tries++;
    if (isFull && turns.some(({ answer }) => answer !== null)) throw full;
    put(turns);
  };
  for (const turn of [turnOf({ answer: new Uint8Array(9) }), turnOf()]) writer.put(turn);
  await until('it was tried again', () => tries > 3);
  isFull = false;
  await until('nothing is pending', () => writer.state.pending === 0);
  assert.deepEqual(writer.state, { ...FRESH, stored: 2 });
  await writer.close();
});

test('what a store does not take at the very end is counted', async () => {
  const store = new FickleStore();
  const writer = new TurnWriter(store);
  store.refuses = () => true;
  writer.put(turnOf());
  assert.equal(await writer.close(), 1);
  assert.equal(writer.state.dropped, 1);
});

test('each turn that is not stored is reported: for its memory, for itself, and at the end', async () => {
  const store = new FickleStore();
  const writer = new TurnWriter(store, 5_000, 5);
  const lost: Turn[] = [];
  writer.onLost = (turn) => void lost.push(turn);
  const bad = turnOf();
  store.refuses = () => true;
  writer.put(bad);
  await writer.flush();
  const large = turnOf({ answer: new Uint8Array(6_000) });
  writer.put(large);
  assert.deepEqual(lost, [large]);
  writer.put(turnOf());
  store.refuses = (turn) => turn === bad;
  await until('the other is there', () => writer.state.stored === 1);
  assert.deepEqual(lost, [large, bad]);
  store.refuses = () => true;
  const last = turnOf();
  writer.put(last);
  await writer.close();
  assert.deepEqual(lost, [large, bad, last]);
});

test('what is learned of a turn reaches the store after the turn, whenever it is learned', async () => {
  const learned = [{ version: '8', from: 2, to: 4 }];
  for (const isPutBefore of [false, true]) {
    const store = new FickleStore();
    const writer = new TurnWriter(store, 1e9, 5);
    const turn = turnOf();
    writer.put(turn);
    if (isPutBefore) await writer.flush();
    writer.amend({ id: turn.id, versions: learned });
    await writer.flush();
    assert.deepEqual(store.get(turn.id)?.versions, learned);
    assert.deepEqual(store.batches, [1], 'the turn is written once');
    await writer.close();
  }
});

test('a store that fails gets what was learned when it is back', async () => {
  const store = new FickleStore();
  const writer = new TurnWriter(store, 1e9, 5);
  let isFull = true;
  store.refuses = () => isFull;
  const early = turnOf();
  writer.put(early);
  await writer.flush();
  await until('it failed', () => writer.state.isFailing);
  const learned = [{ version: '8', from: 2, to: 4 }];
  writer.amend({ id: early.id, versions: learned });
  isFull = false;
  await until('it is there', () => store.get(early.id)?.versions === learned);
  await writer.close();
});
