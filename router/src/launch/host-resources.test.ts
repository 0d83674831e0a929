import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { temporaryFolder } from '../../test/harness/temporary-folder.ts';
import { findGpus } from './host-resources.ts';

/** An environment with this `nvidia-smi`. */
function withNvidiaSmi(t: TestContext, script: string): NodeJS.ProcessEnv {
  const folder = temporaryFolder(t);
  writeFileSync(join(folder, 'nvidia-smi'), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return { PATH: `${folder}${delimiter}${process.env['PATH']}` };
}

test('GPUs are those that are named, else those that nvidia-smi lists; without it they are not known', async (t) => {
  const env = withNvidiaSmi(t, "echo 'GPU 0: H100 (UUID: GPU-1)'; echo 'GPU 1: H100 (UUID: GPU-2)'");
  assert.deepEqual(await findGpus(undefined, env), ['0', '1']);
  assert.deepEqual(await findGpus(undefined, { ...env, CUDA_VISIBLE_DEVICES: '3,5' }), ['3', '5']);
  assert.deepEqual(await findGpus('2', env), ['2']);
  assert.equal(await findGpus(undefined, { PATH: temporaryFolder(t) }), null);
  assert.equal(await findGpus(undefined, withNvidiaSmi(t, 'exit 9')), null);
});

test('an nvidia-smi that hangs is not waited for, also if it holds its output open', async (t) => {
  const env = withNvidiaSmi(t, "trap '' TERM; sleep 10 & while :; do sleep 0.1; done");
  const startMs = performance.now();
  await assert.rejects(findGpus(undefined, env, 100), /nvidia-smi -L has not ended within 0.1 s: name the GPUs/);
  assert.ok(performance.now() - startMs < 5_000);
});
