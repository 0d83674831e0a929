import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pythonCommand } from './engine-command.ts';
import { plan } from './plan.ts';

const tp2 = pythonCommand('sglang', ['--tp', '2']);
const resources = { ports: [31_000, 31_001], gpus: ['0', '1', '2', '3', '4'], gpusPerEngine: 0 };

test('each engine gets its port and its GPUs, and none of the settings of the router', () => {
  const plans = plan(tp2, resources, { PATH: '/bin', TURNOUT_API_KEY: 'secret', CUDA_VISIBLE_DEVICES: '0,1,2,3,4' });
  assert.deepEqual(
    plans.map(({ index, url, args }) => [index, url, args.at(-1)]),
    [
      [0, 'http://127.0.0.1:31000', '31000'],
      [1, 'http://127.0.0.1:31001', '31001'],
    ],
  );
  assert.deepEqual(
    plans.map(({ env }) => env),
    ['0,1', '2,3'].map((gpus) => ({ PATH: '/bin', PYTHONUNBUFFERED: '1', CUDA_VISIBLE_DEVICES: gpus })),
  );
});

test('an argument may differ between engines', () => {
  const words = ['env', 'VLLM_NIXL_SIDE_CHANNEL_PORT={index*10+5600}', 'vllm', 'serve'];
  const command = pythonCommand('vllm', ['m', '--seed={index}'], words);
  const plans = plan(command, { ...resources, gpus: null }, {});
  assert.deepEqual(
    plans.map(({ args }) => args.slice(0, 5).join(' ')),
    [
      'VLLM_NIXL_SIDE_CHANNEL_PORT=5600 vllm serve m --seed=0',
      'VLLM_NIXL_SIDE_CHANNEL_PORT=5610 vllm serve m --seed=1',
    ],
  );
});

test('the program may differ between engines too', () => {
  const plans = plan(
    pythonCommand('vllm', ['m'], ['/opt/engine-{index}/bin/vllm', 'serve']),
    { ...resources, gpus: null },
    {},
  );
  assert.deepEqual(
    plans.map(({ program }) => program),
    ['/opt/engine-0/bin/vllm', '/opt/engine-1/bin/vllm'],
  );
});

test('too few GPUs are said in words; how many an engine takes can be said too', () => {
  assert.throws(
    () => plan(tp2, { ...resources, gpus: ['0', '1', '2'] }, {}),
    /2 engines with 2 GPUs each need 4.*are 3/,
  );
  const [, second] = plan(tp2, { ...resources, gpus: ['GPU-a', 'GPU-b'], gpusPerEngine: 1 }, {});
  assert.equal(second!.env['CUDA_VISIBLE_DEVICES'], 'GPU-b');
});

test('where no GPU is known, and where an engine has no use for one, nothing is said of them', () => {
  for (const gpus of [null, []]) {
    const [first] = plan(tp2, { ...resources, gpus }, { CUDA_VISIBLE_DEVICES: '' });
    assert.equal(first!.env['CUDA_VISIBLE_DEVICES'], '');
  }
  const sim = { program: 'node', args: () => [], env: {}, gpus: 0, portStep: 1 };
  assert.deepEqual(plan(sim, { ...resources, gpus: ['0'] }, {})[1]!.env, {});
});
