import { deepEqual, match } from 'node:assert/strict';
import { test } from 'node:test';
import { startResumeScene } from '../resume/generations.ts';
import { EventReader } from '../harness/stalling-engine.ts';
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
    // The first generation waits at its sixth token until its engine is killed.
    let isFirst = true;
    const script = () => {
      if (!isFirst) return undefined;
      isFirst = false;
      return { ids: [], holdAt: 6 };
    };
    const scene = await startResumeScene(t, kind, 2, { plugin: ['rollout-fields'] }, { script, timeScale: 0.1 });
    const body = {
      model: 'sim',
      prompt: [300, 301, 302],
      max_tokens: 40,
      seed: 7,
      logprobs: true,
      raw_output: true,
    };
    const open = async (): Promise<EventReader> => EventReader.open(`${scene.router.url}/v1/completions`, body);
    const disturbed = await open();
    await disturbed.untilEvents(6);
    await scene.killed(scene.engines.findIndex((engine) => engine.stats().generatedTokens > 0));
    await disturbed.untilDone();
    const got = fieldsIn(disturbed.text);
    match(await scene.metrics(), /^turnout_resumes_total\{cause="cut"\} 1$/m);
    const undisturbed = await open();
    await undisturbed.untilDone();
    deepEqual(got, fieldsIn(undisturbed.text));
    deepEqual([got.prompt, got.ids?.length, got.logprobs, got.finish], [body.prompt, 40, 40, 'length']);
  });
}
