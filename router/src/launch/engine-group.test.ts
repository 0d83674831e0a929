import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withoutKeys } from './engine-group.ts';

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
