import assert from 'node:assert/strict';
import { test } from 'node:test';
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
  lastError: '',
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

test('what does not fit while it fails is dropped and counted, and nothing else is', async () => {
  const store = new FickleStore();
  const writer = new TurnWriter(store, 5_000, 5);
  let isFull = true;
  store.refuses = () => isFull;
  for (let i = 0; i < 20; i++) writer.put(turnOf());
  const { pending, dropped } = writer.state;
  assert.ok(pending > 0 && dropped > 0);
  assert.equal(pending + dropped, 20);
  isFull = false;
  await until('the rest is there', () => writer.state.stored === pending);
  assert.equal(writer.state.dropped, dropped);
  await writer.close();
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
  const large = turnOf({ answer: new Uint8Array(6_000) });
  writer.put(large);
  assert.deepEqual(lost, [large]);
  const bad = turnOf();
  store.refuses = (turn) => turn === bad;
  for (const turn of [bad, turnOf()]) writer.put(turn);
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
