import type { EngineKind } from './engine.ts';
import type { WeightCall } from './weights.ts';

/** The name of the adapter that weight swaps load: one, so that each replaces the one before. */
export const SWAPPED_ADAPTER = 'hot-load';

/** The calls for LoRA adapters that are loaded while an engine runs. */
export interface AdapterCalls {
  load(name: string, directory: string): WeightCall;
  unload(name: string): WeightCall;
  /** @param isLoaded the engine has an adapter of this name */
  replace(name: string, directory: string, isLoaded: boolean): readonly WeightCall[];
  /** To unload waits for the requests that use the adapter, and these wait while the engine is paused. */
  readonly waitsToUnload: boolean;
}

const call = (path: string, body: object): WeightCall => ({ path, json: JSON.stringify(body) });

/** With --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING; `load_inplace` since 0.16. */
const vllm: AdapterCalls = {
  load: (name, directory) => call('/v1/load_lora_adapter', { lora_name: name, lora_path: directory }),
  unload: (name) => call('/v1/unload_lora_adapter', { lora_name: name }),
  replace: (name, directory) => [
    call('/v1/load_lora_adapter', { lora_name: name, lora_path: directory, load_inplace: true }),
  ],
  waitsToUnload: false,
};

/** With --enable-lora. */
const sglang: AdapterCalls = {
  load: (name, directory) => call('/load_lora_adapter', { lora_name: name, lora_path: directory }),
  unload: (name) => call('/unload_lora_adapter', { lora_name: name }),
  replace: (name, directory, isLoaded) =>
    isLoaded ? [sglang.unload(name), sglang.load(name, directory)] : [sglang.load(name, directory)],
  waitsToUnload: true,
};

export const adapterCalls = (kind: EngineKind | null): AdapterCalls => (kind === 'sglang' ? sglang : vllm);

/** What a request names as its `model` to be sampled with an adapter: SGLang 0.5.23 takes a lone name for that of its model. */
export const adapterModel = (kind: EngineKind | null, adapter: string, base: string): string =>
  kind === 'sglang' ? `${base}:${adapter}` : adapter;
