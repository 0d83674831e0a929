import assert from 'node:assert/strict';
import { test } from 'node:test';
import { layersOf, readLayerList } from './layers.ts';

const from = (start: number, end: number): number[] => Array.from({ length: end - start }, (_, i) => start + i);

// As the models' config.json say it.
const models: [name: string, config: object, moeLayers: number[], experts: number, perToken: number][] = [
  [
    'DeepSeek V3',
    {
      num_hidden_layers: 61,
      n_routed_experts: 256,
      num_experts_per_tok: 8,
      first_k_dense_replace: 3,
      moe_layer_freq: 1,
    },
    from(3, 61),
    256,
    8,
  ],
  [
    'Qwen3-30B-A3B',
    { num_hidden_layers: 48, num_experts: 128, num_experts_per_tok: 8, decoder_sparse_step: 1, mlp_only_layers: [] },
    from(0, 48),
    128,
    8,
  ],
  [
    'Qwen with some dense layers',
    { num_hidden_layers: 6, num_experts: 8, num_experts_per_tok: 2, decoder_sparse_step: 2, mlp_only_layers: [3] },
    [1, 5],
    8,
    2,
  ],
  ['Mixtral', { num_hidden_layers: 32, num_local_experts: 8, num_experts_per_tok: 2 }, from(0, 32), 8, 2],
  [
    'a word for each layer',
    {
      num_hidden_layers: 3,
      n_routed_experts: 4,
      num_experts_per_tok: 2,
      mlp_layer_types: ['dense', 'sparse', 'sparse'],
    },
    [1, 2],
    4,
    2,
  ],
  [
    'a number for each layer',
    { num_hidden_layers: 3, n_routed_experts: 4, num_experts_per_tok: 2, moe_layer_freq: [0, 1, 1] },
    [1, 2],
    4,
    2,
  ],
  [
    'the language model of a multimodal one',
    {
      text_config: {
        num_hidden_layers: 4,
        num_local_experts: 16,
        num_experts_per_tok: 1,
        interleave_moe_layer_step: 2,
      },
    },
    [1, 3],
    16,
    1,
  ],
];

for (const [name, config, moeLayers, experts, perToken] of models) {
  test(`layers with experts: ${name}`, () => {
    const facts = layersOf(config as Record<string, unknown>)!;
    assert.deepEqual(facts.moeLayers, moeLayers);
    assert.deepEqual([facts.experts, facts.perToken], [experts, perToken]);
  });
}

test('a model without experts has no facts', () => {
  assert.equal(layersOf({ num_hidden_layers: 28, num_attention_heads: 28 }), null);
});

test('lists of layers', () => {
  assert.deepEqual(readLayerList('3-5'), [3, 4, 5]);
  assert.deepEqual(readLayerList('0, 2,7-8'), [0, 2, 7, 8]);
  assert.equal(readLayerList('all'), null);
  for (const text of ['', '3-', 'x', '1..2', '-1']) assert.equal(readLayerList(text), undefined, text);
});
