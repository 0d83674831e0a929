import assert from 'node:assert/strict';
import { lookup } from 'node:dns/promises';
import { setImmediate } from 'node:timers/promises';
import { test } from 'node:test';
import { tokenizerFolder } from '../../../../test/harness/capture-scene.ts';
import { encode } from '../../../../../simulator/src/tokens/tokenizer.ts';
import { inLanes } from './in-lanes.ts';
import { loadTokenizer } from './load-tokenizer.ts';

const path = tokenizerFolder();
const native = await loadTokenizer(path, 'native');
const LIMITS = { large: 1_000, max: 1_000_000, maxWaiting: 1_500_000, maxMs: 60_000 };
const source = { path, choice: 'native' } as const;
const longText = (letters: number): string => 'Ten what is of '.repeat(Math.ceil(letters / 15)).slice(0, letters);

test('the native tokenizer does one thing at a time, and a failure is that of its call alone', async () => {
  let running = 0;
  let most = 0;
  const work = async <T>(result: T): Promise<T> => {
    most = Math.max(most, ++running);
    await setImmediate();
    running--;
    return result;
  };
  const counted = {
    ...native,
    encode: (text: string) => (text === '' ? Promise.reject(new Error('no')) : work([text.length])),
    decode: (ids: readonly number[]) => work(ids.join()),
  };
  const tokenizer = inLanes(counted, source, LIMITS);
  const calls = [...Array(9).keys()].map((i) =>
    Promise.resolve(i % 2 === 0 ? tokenizer.encode('x'.repeat(i), false) : tokenizer.decode([i])),
  );
  const results = (await Promise.allSettled(calls)).map((result) =>
    result.status === 'fulfilled' ? String(result.value) : 'no',
  );
  assert.deepEqual(results, ['no', '1', '2', '3', '4', '5', '6', '7', '8']);
  assert.equal(most, 1);
});

test('a large text is encoded on another thread, and no small one waits for it', async () => {
  const tokenizer = inLanes(native, source, LIMITS);
  const order: string[] = [];
  const text = longText(200_000);
  const large = Promise.resolve(tokenizer.encode(text, true)).finally(() => order.push('large'));
  assert.deepEqual(await tokenizer.encode('Ten what', true), encode('Ten what'));
  order.push('small');
  assert.deepEqual([...(await large)], encode(text));
  assert.deepEqual(order, ['small', 'large']);
});

test('names are looked up while as many texts as may are tokenised', async () => {
  const tokenizer = inLanes(native, source, { ...LIMITS, large: 40_000 });
  let done = 0;
  /** Many more texts than libuv has threads, which lookups use too. */
  const encodeEach = (letters: number): Promise<void>[] =>
    Array.from({ length: 12 }, async () => {
      await tokenizer.encode(longText(letters), true);
      done++;
    });
  const small = encodeEach(40_000);
  const large = encodeEach(60_000);
  const looksUp = async (): Promise<void> => {
    const before = done;
    await lookup('localhost');
    assert.ok(done - before < 5, `${done - before} texts were tokenised first`);
  };
  await looksUp();
  await large[0];
  await looksUp();
  await Promise.all([...small, ...large]);
});

test('texts are bounded: each by its length and its time, and those that wait together', async () => {
  const tokenizer = inLanes(native, source, LIMITS);
  const refusal = (text: string) => async (): Promise<unknown> => tokenizer.encode(text, true);
  await assert.rejects(refusal(longText(1_000_001)), {
    code: 'payload_too_large',
    message: /at most 1000000 are tokenised/,
  });
  const waits = Promise.resolve(tokenizer.encode(longText(800_000), true));
  await assert.rejects(refusal(longText(800_000)), { code: 'overloaded' });
  await waits;
  assert.equal((await tokenizer.encode(longText(2_000), true)).length, encode(longText(2_000)).length);

  const hurried = inLanes(native, source, { ...LIMITS, maxMs: 1 });
  const late = [1, 2].map(async () => hurried.encode(longText(500_000), true));
  for (const each of late)
    await assert.rejects(each, { code: 'payload_too_large', message: /not tokenised within 0.001 s/ });
});
