import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startSimEngine } from './engine.ts';
import type { FinishedRecord } from './model/sequence.ts';
import { encode, endOfTurn } from './tokens/tokenizer.ts';

const letter = [...Buffer.from('é')];
const ids = [...encode(' the moon'), ...letter, endOfTurn];

test('a scripted sequence samples its ids, pauses at its places, and ends its stream on request', async (t) => {
  const log: FinishedRecord[] = [];
  const held = Promise.withResolvers<void>();
  const end = Promise.withResolvers<void>();
  const engine = await startSimEngine({
    timeScale: 0,
    incrementalStreamingOutput: true,
    onFinished: (record) => log.push(record),
    script: (requestId) =>
      requestId === 'a'
        ? { ids, holdAt: ids.length - 2, onHeld: held.resolve, beforeEnd: () => end.promise }
        : undefined,
  });
  t.after(() => engine.close());
  const response = await fetch(`${engine.url}/generate`, {
    method: 'POST',
    body: JSON.stringify({ text: 'x', rid: 'a', stream: true, return_logprob: true }),
  });
  const texts: string[] = [];
  let isOver = false;
  const read = (async () => {
    for await (const part of response.body!.pipeThrough(new TextDecoderStream())) {
      for (const event of part.split('\n\n')) {
        if (event === 'data: [DONE]') isOver = true;
        else if (event !== '') texts.push((JSON.parse(event.slice(6)) as { text: string }).text);
      }
      if (texts.length === ids.length) break;
    }
  })();
  await held.promise;
  assert.equal(log.length, 0);
  assert.equal(engine.core.flushCache(), false);
  const [unfinished] = engine.core.unfinished();
  assert.deepEqual(unfinished!.outputIds, ids.slice(0, -2));
  engine.core.release(({ id }) => id === 'a');
  await read;
  assert.deepEqual(log[0]!.outputIds, ids);
  assert.equal(log[0]!.logprobs.length, ids.length);
  // Half a letter is no text.
  assert.deepEqual(texts.slice(-3), ['', 'é', '']);
  assert.equal(texts.join(''), ' the mooné');
  assert.equal(isOver, false);
  end.resolve();
});

test('logprobs of equal requests differ by the noise that is asked for, and an answer says what the log says', async (t) => {
  const log: FinishedRecord[] = [];
  const engine = await startSimEngine({ timeScale: 0, logprobNoise: 0.01, onFinished: (record) => log.push(record) });
  t.after(() => engine.close());
  const ask = async (): Promise<number[]> => {
    const sampling_params = { max_new_tokens: 20, temperature: 0 };
    const body = JSON.stringify({ text: 'x', return_logprob: true, sampling_params });
    const response = await fetch(`${engine.url}/generate`, { method: 'POST', body });
    const { meta_info: info } = (await response.json()) as {
      meta_info: { output_token_logprobs: [number, number, null][] };
    };
    return info.output_token_logprobs.map(([logprob]) => logprob);
  };
  const [a, b] = [await ask(), await ask()];
  assert.deepEqual(
    [a, b],
    log.map(({ logprobs }) => logprobs),
  );
  assert.deepEqual(log[0]!.outputIds, log[1]!.outputIds);
  for (const [i, logprob] of a.entries()) {
    assert.notEqual(logprob, b[i]);
    assert.ok(Math.abs(logprob - b[i]!) <= 0.01);
  }
});
