import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NoAnswer } from '../../../engines/ask.ts';
import type { Fleet } from '../../../fleet/fleet.ts';
import type { Worker } from '../../../fleet/worker.ts';
import type { Logger } from '../../../observe/log.ts';
import { until } from '../../../../test/harness/within.ts';
import { TokenizerCheck } from './tokenizer-check.ts';

const quiet = { warn() {}, error() {} } as unknown as Logger;

test('an engine that does not answer the question delays one request, not each', async (t) => {
  let asked = 0;
  let problem: Error = new NoAnswer('no answer within 2000 ms');
  const worker = {
    reasons: 0,
    post: () => {
      asked++;
      return Promise.reject(problem);
    },
  } as unknown as Worker;
  let tell: (event: 'changed', worker: Worker) => void = () => {};
  const fleet = {
    workers: [worker],
    has: () => true,
    onEvent(listener: typeof tell) {
      tell = listener;
      return () => {};
    },
  } as unknown as Fleet;
  const tokenizerCheck = new TokenizerCheck(() => Promise.resolve([1]), quiet);
  t.after(() => tokenizerCheck.close());
  tokenizerCheck.watch(fleet);
  // All of this is one turn of the event loop: no timer of the background comes between.
  await tokenizerCheck.check(worker);
  assert.equal(asked, 1);
  await tokenizerCheck.check(worker);
  assert.equal(asked, 1, 'it is asked in the background');

  // What says that it can't tell now says so at once: the next request finds out whether it can.
  tell('changed', worker);
  problem = new Error('/tokenize answers 503');
  for (const count of [2, 3]) {
    await tokenizerCheck.check(worker);
    assert.equal(asked, count);
  }
  problem = new NoAnswer('no answer within 2000 ms');
  await until('it is asked once more, with no request', () => asked > 3);
});
