import { deepEqual, match } from 'node:assert/strict';
import { test } from 'node:test';
import { startResumeScene } from '../resume/generations.ts';
import { until } from '../harness/within.ts';
import { type Answer, KINDS, chunksIn } from './scene.ts';

/** What the fields say of all of a generation. */
function fieldsIn(text: string) {
  const choices = (chunksIn(text) as (Answer | null)[]).flatMap((chunk) => chunk?.choices ?? []);
  const raw = choices.at(-1)?.raw_output;
  return {
    finish: choices.at(-1)?.finish_reason,
    offsets: choices.flatMap(({ logprobs }) => logprobs?.content.map((entry) => entry.text_offset) ?? []),
    completion: raw?.completion,
    prompt: raw?.prompt_token_ids,
    ids: raw?.completion_token_ids,
    logprobs: raw?.completion_logprobs?.content.length,
  };
}

for (const kind of KINDS) {
  test(`${kind}: the fields of a stream that another engine continues are of all of its tokens`, async (t) => {
    const scene = await startResumeScene(t, kind, 2, { plugin: ['rollout-fields'] }, { timeScale: 1 });
    const body = {
      model: 'sim',
      prompt: [300, 301, 302],
      max_tokens: 40,
      seed: 7,
      stream: true,
      logprobs: true,
      raw_output: true,
    };
    const ask = async (): Promise<string> => {
      const sent = { method: 'POST', body: JSON.stringify(body) };
      return (await fetch(`${scene.router.url}/v1/completions`, sent)).text();
    };
    const disturbed = ask();
    const serving = (): number =>
      scene.engines.findIndex(({ core }) => core.scheduler.running.some(({ output }) => output.length > 4));
    await until('some tokens are there', () => serving() >= 0);
    await scene.killed(serving());
    const got = fieldsIn(await disturbed);
    match(await scene.metrics(), /^turnout_resumes_total\{cause="cut"\} 1$/m);
    deepEqual(got, fieldsIn(await ask()));
    deepEqual([got.prompt, got.ids?.length, got.logprobs, got.finish], [body.prompt, 40, 40, 'length']);
  });
}
