// SGLang answers the abort of a request that waits in its queue, where it is again after it lost its memory, with fewer members and ids.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exportedLines, startChatScene } from '../harness/chat-scene.ts';
import { until } from '../harness/within.ts';

interface Line {
  readonly tokens: readonly number[];
  readonly loss_mask: readonly number[];
  readonly turns: readonly { readonly finish_reason: string; readonly prompt_tokens: number }[];
}

for (const stream of [false, true]) {
  for (const incrementalStreamingOutput of stream ? [false, true] : [false]) {
    for (const withLogprobs of [false, true]) {
      const form = stream
        ? incrementalStreamingOutput
          ? 'an incremental stream'
          : 'a cumulative stream'
        : 'an answer';
      const what = `${form} ${withLogprobs ? 'with' : 'without'} logprobs`;
      test(`${what}: an abort in the queue is on record with the tokens before it`, async (t) => {
        const sim = { timeScale: 0.3, meanOutputTokens: 0, incrementalStreamingOutput };
        const scene = await startChatScene(t, { sim, router: { plugin: ['radix-tree'] } });
        const { core } = scene.engines[0]!;
        const params = { max_new_tokens: 500 };
        const body = { text: 'What is of ten?', stream, return_logprob: withLogprobs, sampling_params: params };
        const answer = scene.post('/generate', JSON.stringify(body), { 'x-session-id': 's' });
        await until('it has tokens', () => (core.scheduler.running[0]?.output.length ?? 0) > 9);
        await core.pause('retract');
        core.abort(() => true);
        core.resume();
        const { text } = await answer;
        assert.match(text, /Abort in waiting queue/);
        const [line, ...others] = await exportedLines<Line>(scene);
        const [truth] = scene.log;
        assert.equal(others.length, 0);
        assert.deepEqual(line!.tokens, [...truth!.inputIds, ...truth!.outputIds]);
        assert.equal(line!.loss_mask.filter((mask) => mask === 1).length, truth!.outputIds.length);
        assert.deepEqual(
          line!.turns.map((turn) => [turn.finish_reason, turn.prompt_tokens]),
          [['abort', truth!.inputIds.length]],
        );
      });
    }
  }
}
