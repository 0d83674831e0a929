import assert from 'node:assert/strict';
import { test } from 'node:test';
import { gpusOf, pythonCommand } from './engine-command.ts';

test("an engine is its module with the user's arguments and its address", () => {
  const sglang = pythonCommand('sglang', ['--model-path', 'm']);
  assert.equal(sglang.program, 'python3');
  assert.deepEqual(
    sglang.args(31_002),
    '-m sglang.launch_server --model-path m --host 127.0.0.1 --port 31002'.split(' '),
  );
});

test('a model may be named as `vllm serve` takes it, whatever starts the engine', () => {
  const address = ['--host', '127.0.0.1', '--port', '9'];
  const api = ['-m', 'vllm.entrypoints.openai.api_server'];
  assert.deepEqual(pythonCommand('vllm', ['m', '--seed', '1']).args(9), [
    ...api,
    '--model',
    'm',
    '--seed',
    '1',
    ...address,
  ]);
  assert.deepEqual(pythonCommand('vllm', ['--model', 'm']).args(9), [...api, '--model', 'm', ...address]);
  const serve = pythonCommand('vllm', ['m'], ['/opt/vllm', 'serve']);
  assert.deepEqual([serve.program, ...serve.args(9)], ['/opt/vllm', 'serve', 'm', ...address]);
});

test('an engine takes tensor × pipeline × data GPUs, in any spelling', () => {
  assert.equal(gpusOf('sglang', []), 1);
  assert.equal(gpusOf('sglang', ['--tp', '4']), 4);
  assert.equal(gpusOf('vllm', ['-tp=2', '--pipeline-parallel-size', '2']), 4);
  assert.equal(gpusOf('vllm', ['--tensor-parallel-size=2', '--data-parallel-size', '3']), 6);
  assert.equal(gpusOf('vllm', ['--data-parallel-size', '8', '--data-parallel-size-local', '4']), 4);
  assert.equal(gpusOf('vllm', ['--tensor_parallel_size', '2', '--pipeline_parallel_size=2']), 4);
  assert.equal(gpusOf('sglang', ['--tp', '2', '--tp-size', '4']), 4, 'the last one counts');
  assert.equal(gpusOf('sglang', ['--tp-size', '4', '--dp-size', '4', '--enable-dp-attention']), 4);
  assert.equal(gpusOf('sglang', ['--tp-size', '--dp-size']), 1, 'a flag without its value is for the engine to refuse');
});

test('with DP attention an engine of SGLang listens on ports that no other engine has', () => {
  const { portStep } = pythonCommand('sglang', ['--tp', '4', '--dp', '4', '--enable-dp-attention']);
  const portsOf = (http: number): number[] => [http, ...Array.from({ length: 14 }, (_, i) => http + 233 + i)];
  const all = Array.from({ length: 64 }, (_, i) => portsOf(31_000 + i * portStep)).flat();
  assert.equal(new Set(all).size, all.length);
  assert.equal(pythonCommand('sglang', ['--tp', '4']).portStep, 1);
});
