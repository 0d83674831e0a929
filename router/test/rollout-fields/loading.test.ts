import { deepEqual } from 'node:assert/strict';
import { test } from 'node:test';
import { recordedLog } from '../harness/log-lines.ts';
import { startTestRouter } from '../harness/router.ts';

for (const [options, wanted] of [
  [{}, []],
  [{ swapSnapshots: '/snapshots/{identity}' }, ['rollout-fields']],
  [{ swapSnapshots: '/snapshots/{identity}', plugin: ['rollout-fields:{"layers":4}'] }, ['rollout-fields']],
] as const) {
  test(`plugins with ${JSON.stringify(options)}: ${wanted.join()}`, async (t) => {
    const log = recordedLog();
    await startTestRouter(t, options, { log: log.log });
    deepEqual(
      log.of('plugin loaded').map(({ plugin }) => plugin),
      wanted,
    );
  });
}
