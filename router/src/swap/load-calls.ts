import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { SWAPPED_ADAPTER, adapterCalls } from '../engines/adapters.ts';
import type { WeightCall, WeightCalls } from '../engines/weights.ts';
import type { Worker } from '../fleet/worker.ts';
import type { LoadableSnapshot } from './engine-swap.ts';
import type { SwapEngine } from './engine.ts';

/** Whether the directory has a LoRA adapter, as this router sees it. */
const isAdapter = async (directory: string): Promise<boolean> =>
  directory !== '' && (await stat(join(directory, 'adapter_config.json')).catch(() => null)) !== null;

/** Whether the engine has an adapter of a weight swap: engines list their adapters. */
export const hasAdapter = ({ models }: Worker): boolean => models?.has(SWAPPED_ADAPTER) === true;

export interface LoadCalls {
  /** In this order; the next one only after the one before has succeeded. */
  readonly calls: readonly WeightCall[];
  /** The last call sets the weight version too, to the identity. */
  readonly setsLabel: boolean;
  /** Afterwards the engine lists other models. */
  readonly changesModels: boolean;
}

/** The calls that take an engine to a snapshot: whole weights, or an adapter beside the weights that it has. */
export async function loadCalls(
  { kind, worker }: SwapEngine,
  weights: WeightCalls,
  { identity, path }: LoadableSnapshot,
): Promise<LoadCalls> {
  const adapters = adapterCalls(kind);
  const had = hasAdapter(worker);
  if (await isAdapter(path!))
    return { calls: adapters.replace(SWAPPED_ADAPTER, path!, had), setsLabel: false, changesModels: true };
  const load = weights.load(path!, identity);
  const calls = had ? [adapters.unload(SWAPPED_ADAPTER), load] : [load];
  return { calls, setsLabel: weights.labelsWithLoad, changesModels: had };
}

/** Whether requests in flight must end before the engine is paused: it unloads the adapter that they use. */
export const mustDrain = ({ kind, worker }: SwapEngine): boolean =>
  adapterCalls(kind).waitsToUnload && hasAdapter(worker);
