import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** Which layers of a model have experts. */
export interface LayerFacts {
  /** All hidden layers; null: not known. */
  readonly layers: number | null;
  /** The numbers of the layers with experts, in order; null: all. */
  readonly moeLayers: readonly number[] | null;
  /** Experts per layer; null: not known. */
  readonly experts: number | null;
  /** Experts that a token uses in a layer; null: not known. */
  readonly perToken: number | null;
}

/** @param path a config.json, or the folder that has it @returns null: it is not there, or says nothing of experts */
export async function loadLayers(path: string): Promise<LayerFacts | null> {
  try {
    const isFolder = (await stat(path)).isDirectory();
    return layersOf(JSON.parse(await readFile(isFolder ? join(path, 'config.json') : path, 'utf8')) as Config);
  } catch {
    return null;
  }
}

type Config = Readonly<Record<string, unknown>>;

/** By the names that configurations of Hugging Face have for it. @param config the model's config.json */
export function layersOf(config: Config): LayerFacts | null {
  const own = (config['text_config'] ?? config) as Config;
  const number = (...names: string[]): number | null => {
    const value = names.map((name) => own[name]).find((each) => typeof each === 'number');
    return value ?? null;
  };
  const list = (name: string): readonly unknown[] | null =>
    Array.isArray(own[name]) ? (own[name] as unknown[]) : null;
  const layers = number('num_hidden_layers');
  const experts = number('n_routed_experts', 'num_experts', 'num_local_experts', 'moe_num_experts');
  if (layers === null || experts === null) return null;
  const perToken = number('num_experts_per_tok', 'num_experts_per_token', 'moe_topk', 'moe_k', 'top_k_experts');
  const types = list('mlp_layer_types');
  const frequencies = list('moe_layer_freq');
  const dense = list('mlp_only_layers') ?? [];
  const firstDense = number('first_k_dense_replace') ?? 0;
  const frequency = number('moe_layer_freq') ?? 1;
  const step = number('decoder_sparse_step', 'interleave_moe_layer_step') ?? 1;
  const hasExperts = (layer: number): boolean => {
    // GLM, DeepSeek (new): a word for each layer. MiMo: 0 or 1 for each.
    if (types !== null) return types[layer] !== 'dense';
    if (frequencies !== null) return frequencies[layer] !== 0;
    // DeepSeek: the first are dense. Qwen, Llama 4: each so many layers.
    return layer >= firstDense && layer % frequency === 0 && (layer + 1) % step === 0 && !dense.includes(layer);
  };
  return { layers, experts, perToken, moeLayers: Array.from({ length: layers }, (_, i) => i).filter(hasExperts) };
}

/** Reads `3-60`, `0,2,4-9`, or `all`. @returns null: all layers; undefined: not valid */
export function readLayerList(text: string): readonly number[] | null | undefined {
  if (text === 'all') return null;
  const layers: number[] = [];
  for (const part of text.split(',')) {
    const match = /^(\d{1,4})(?:-(\d{1,4}))?$/.exec(part.trim());
    if (match === null) return undefined;
    const from = Number(match[1]);
    for (let layer = from; layer <= Number(match[2] ?? from); layer++) layers.push(layer);
  }
  return layers;
}
