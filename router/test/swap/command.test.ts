import { equal, match } from 'node:assert/strict';
import { test } from 'node:test';
import { turnout } from '../cli/turnout.ts';
import { startTestRouter } from '../harness/router.ts';
import { startSims, startSwapScene } from '../harness/swap-scene.ts';

test('turnout swap signals a snapshot and follows the swap; its exit code says whether all engines have it', async (t) => {
  const [vllm, sglang] = await startSims(t, ['vllm', 'sglang']);
  const { router, untilOver } = await startSwapScene(t, [vllm!, sglang!]);
  const swap = async (...args: readonly string[]): Promise<[number | null, string]> => {
    const run = turnout(t, ['swap', ...args, '--url', router.url]);
    return [await run.ended, run.output()];
  };
  const [done, lines] = await swap('step-1', '--watch');
  equal(done, 0);
  match(lines, /^step-1: started\n/);
  for (const { url, core } of [vllm!, sglang!]) {
    match(lines, new RegExp(`${url}  serving  done  step-1\n`));
    equal(core.weightVersion, 'step-1');
  }
  const [atOnce, word] = await swap('step-2');
  equal(atOnce, 0);
  equal(word, 'step-2: started\n');
  await untilOver();
  sglang!.core.faults.add('/update_weights_from_disk', 'fail_before');
  const [failed, told] = await swap('step-3', '--watch', '--transition', 'sync');
  equal(failed, 1);
  match(told, new RegExp(`${sglang!.url}  error  error  step-2  load: /update_weights_from_disk answered 500`));
  const [refused, why] = await swap('a/b');
  equal(refused, 2);
  match(
    why,
    /answered 400\. The identity of a snapshot has only the characters A-Z a-z 0-9 \. _ - and is not \. or \.\./,
  );
});

test('turnout swap with a router that has no swaps, and with a server that is no router', async (t) => {
  const [engine] = await startSims(t, ['vllm']);
  const router = await startTestRouter(t, { workerUrls: [engine!.url] });
  for (const [url, hint] of [
    [router.url, /answered 404\. This router does not serve \/swap: that needs --swap-snapshots or deployments\./],
    [engine!.url, /answered 404\. Is this a turnout router\?/],
  ] as const) {
    const run = turnout(t, ['swap', 'step-1', '--url', url]);
    equal(await run.ended, 2);
    match(run.output(), hint);
  }
});
