import { deepEqual, equal, ok } from 'node:assert/strict';
import { test } from 'node:test';
import type { FinishedRecord } from '../../../simulator/src/model/sequence.ts';
import { decode } from '../../../simulator/src/tokens/tokenizer.ts';
import { untilIdle } from '../harness/router.ts';
import { startSims, startSwapScene } from '../harness/swap-scene.ts';
import { often } from '../harness/often.ts';

const STREAMS = often(100, 200);
const SWAPS = often(9, 20);
const TOKENS = 120;

test(`${STREAMS} streams at a time across ${SWAPS} swaps: none fails, no token is lost or repeated`, async (t) => {
  const records = new Map<string, FinishedRecord>();
  const onFinished = (record: FinishedRecord): void => void records.set(record.session!, record);
  const simulated = { timeScale: 1, weightLoadMs: 40, onFinished };
  const engines = await startSims(t, ['vllm', 'sglang', 'vllm', 'sglang'], simulated);
  const { router, swap } = await startSwapScene(t, engines, { policy: 'round_robin' });
  let isOver = false;
  let made = 0;
  const client = async (number: number): Promise<void> => {
    for (let turn = 0; !isOver || turn === 0; turn++) {
      const session = `${number}-${turn}`;
      const body = { prompt: `stream ${session}`, max_tokens: TOKENS, ignore_eos: true, stream: true };
      const init = { method: 'POST', headers: { 'x-session-id': session }, body: JSON.stringify(body) };
      const answer = await fetch(`${router.url}/v1/completions`, init);
      equal(answer.status, 200);
      const text = await answer.text();
      ok(text.endsWith('data: [DONE]\n\n'), text.slice(-200));
      const events = text.matchAll(/^data: (\{.*\})$/gm);
      const got = Array.from(events, ([, json]) => textOf(json!)).join('');
      const { outputIds, finish } = records.get(session)!;
      equal(finish.type, 'length');
      equal(outputIds.length, TOKENS);
      equal(got, decode([...outputIds]), 'the client has what the engine made');
      made++;
    }
  };
  const clients = Array.from({ length: STREAMS }, (_, number) => client(number));
  for (let i = 1; i <= SWAPS; i++) {
    const { workers } = await swap(`step-${i}`, {
      reset_prompt_cache: (['all', 'new_session', 'none'] as const)[i % 3],
    });
    for (const { snapshot, error } of workers) deepEqual([snapshot, error], [`step-${i}`, null]);
  }
  isOver = true;
  await Promise.all(clients);
  await untilIdle(router);
  let versions = 0;
  for (const { weightVersions } of records.values()) versions = Math.max(versions, weightVersions.length);
  ok(versions > 2, 'streams crossed swaps');
  const generated = engines.reduce((sum, engine) => sum + engine.stats().generatedTokens, 0);
  equal(generated, made * TOKENS, 'no token was made twice');
  equal(
    engines.reduce((sum, engine) => sum + engine.stats().aborted, 0),
    0,
  );
  t.diagnostic(`${made} streams`);
});

const textOf = (json: string): string =>
  (JSON.parse(json) as { choices: { text: string }[] }).choices.map(({ text }) => text).join('');
