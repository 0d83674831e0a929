import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { seededRandom } from '../../src/kit/rng.ts';
import { untilIdle } from '../harness/router.ts';
import { type Kind, type ResumeScene, generate, startResumeScene } from './generations.ts';

/** `npm run test:resume` runs the full size: 500 generations, 40 deaths, 40 aborts by each. */
const GENERATIONS = Number(process.env.TURNOUT_RESUME_GENERATIONS ?? 60);
const FAULTS = Number(process.env.TURNOUT_RESUME_FAULTS ?? 4);

interface Asked {
  readonly path: string;
  readonly body: Record<string, unknown>;
}

/** Requests of all forms, by their number. */
function askedBy(kind: Kind, i: number, random: () => number): Asked {
  const ids = Array.from({ length: 5 + Math.floor(random() * 40) }, () => 264 + Math.floor(random() * 700));
  const limit = 60 + Math.floor(random() * 80);
  const stream = i % 5 !== 0;
  const seed = i;
  if (i % 2 === 0) {
    if (kind === 'vllm')
      return {
        path: '/inference/v1/generate',
        body: { token_ids: ids, stream, sampling_params: { seed, max_tokens: limit } },
      };
    return {
      path: '/generate',
      body: {
        input_ids: ids,
        stream,
        return_logprob: i % 4 === 0,
        sampling_params: { sampling_seed: seed, max_new_tokens: limit },
      },
    };
  }
  const more = i % 3 === 0 ? { return_token_ids: true, logprobs: 1 } : {};
  return {
    path: '/v1/completions',
    body: { prompt: ids, stream, seed, max_tokens: limit, stream_options: { include_usage: true }, ...more },
  };
}

/** Runs all generations, some at a time, while `disturb` is called again and again. */
async function run(
  scene: ResumeScene,
  kind: Kind,
  count: number,
  disturb: () => Promise<void>,
): Promise<{ failed: string[]; aborted: number }> {
  const random = seededRandom(5);
  const asked = Array.from({ length: count }, (_, i) => askedBy(kind, i, random));
  const failed: string[] = [];
  let aborted = 0;
  let next = 0;
  const worker = async (): Promise<void> => {
    while (next < asked.length) {
      const i = next++;
      const { path, body } = asked[i]!;
      const expected = await generate(scene.undisturbed.url, path, body);
      const seen = await generate(scene.router.url, path, body);
      const isAborted = seen.finish === 'abort';
      if (isAborted) aborted++;
      const what = `${i} ${path} ${body.stream === true ? 'stream' : 'whole'}`;
      if (seen.error !== '' || seen.status !== 200) failed.push(`${what}: ${seen.status} ${seen.error}`);
      else if (isAborted) {
        if (!isPrefix(seen.ids, expected.ids) || !(expected.text ?? '').startsWith(seen.text ?? ''))
          failed.push(`${what}: aborted, not a beginning`);
      } else {
        try {
          assert.deepEqual(seen, expected);
        } catch (error) {
          failed.push(`${what}: ${(error as Error).message}`);
        }
      }
    }
  };
  let isOver = false;
  const disturbing = (async () => {
    while (!isOver) await disturb();
  })();
  await Promise.all(Array.from({ length: 12 }, worker));
  isOver = true;
  await disturbing;
  await untilIdle(scene.router);
  return { failed, aborted };
}

const isPrefix = (ids: readonly number[] | null, all: readonly number[] | null): boolean =>
  ids === null ? all === null : all !== null && ids.every((id, i) => all[i] === id);

for (const kind of ['sglang', 'vllm'] as const) {
  test(`${kind}: generations survive the deaths of their engines, and direct aborts stay aborts`, async (t) => {
    const scene = await startResumeScene(t, kind, 3, { retryMaxRetries: 10 });
    let deaths = 0;
    let aborts = 0;
    const abort = kind === 'sglang' ? ['/abort_request', '{"abort_all":true}'] : ['/abort_requests', '{}'];
    const { failed, aborted } = await run(scene, kind, GENERATIONS / 2, async () => {
      const busiest = scene.busiest();
      if (busiest < 0 || (deaths >= FAULTS / 2 && aborts >= FAULTS / 2)) return delay(2);
      if (deaths > aborts) {
        aborts++;
        await fetch(scene.engines[busiest]!.url + abort[0]!, { method: 'POST', body: abort[1]! });
      } else {
        deaths++;
        await scene.killed(busiest);
      }
    });
    const metrics = await scene.metrics();
    const unresumed = metrics.split('\n').filter((line) => line.startsWith('turnout_unresumed'));
    assert.deepEqual([failed, unresumed], [[], []]);
    assert.deepEqual([deaths, aborts], [FAULTS / 2, FAULTS / 2]);
    assert.ok(aborted > 0, 'aborts were seen');
    const resumes = Number(/turnout_resumes_total\{cause="cut"\} (\d+)/.exec(metrics)?.[1]);
    assert.ok(resumes > 0, metrics);
    assert.doesNotMatch(metrics, /turnout_resumes_total\{cause="aborted"\}/);
  });
}
