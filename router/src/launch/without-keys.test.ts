import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withoutKeys } from './without-keys.ts';

test('keys are not logged, however many a flag has', () => {
  const args = ['--api-key', 'k1', 'k2', '--tp', '2', '--hf-token=t', '--api_key', 'k3', '-dp', '1'];
  assert.deepEqual(withoutKeys(args), [
    '--api-key',
    '…',
    '…',
    '--tp',
    '2',
    '--hf-token=…',
    '--api_key',
    '…',
    '-dp',
    '1',
  ]);
});

test('keys in variables are not logged, however they are set', () => {
  for (const name of ['HF_TOKEN', 'openai_api_key', 'MY_SECRET_1', 'DbPassword', '-eHF_TOKEN', '--env=HF_TOKEN'])
    assert.deepEqual(withoutKeys(['env', `${name}=never=shown`, 'vllm']), ['env', `${name}=…`, 'vllm']);
  const shown = ['CUDA_VISIBLE_DEVICES=0', '--max-num-batched-tokens=8192', '--env=A=1', 'key', 'a.b/token=1'];
  assert.deepEqual(withoutKeys(shown), shown);
});
