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

/** The identity of the whole weights of an engine that has a snapshot: the snapshot itself, or what is under an adapter. null: not known. */
export const wholeOf = async ({ identity, path, under }: LoadableSnapshot): Promise<string | null> =>
  path !== null && (await isAdapter(path)) ? (under?.identity ?? null) : identity;

interface LoadCall extends WeightCall {
  /** The identity of the whole weights that the engine has afterwards; null: those of before. */
  readonly whole: string | null;
}

export interface LoadCalls {
  /** In this order; the next one only after the one before has succeeded. */
  readonly calls: readonly LoadCall[];
  /** The last call sets the weight version too, to the identity. */
  readonly setsLabel: boolean;
  /** Afterwards the engine lists other models. */
  readonly changesModels: boolean;
}

/**
 * The calls that take an engine to a snapshot: whole weights, or an adapter beside whole weights, which are loaded first if the engine does not have
 * them for sure.
 *
 * @returns null: where the whole weights are is not known
 */
export async function loadCalls(
  { kind, worker, whole }: SwapEngine,
  weights: WeightCalls,
  snapshot: LoadableSnapshot,
): Promise<LoadCalls | null> {
  const adapters = adapterCalls(kind);
  const had = hasAdapter(worker);
  const toWhole = ({ path, identity }: LoadableSnapshot): LoadCall[] => {
    const load = { ...weights.load(path!, identity), whole: identity };
    return had ? [{ ...adapters.unload(SWAPPED_ADAPTER), whole: null }, load] : [load];
  };
  const { path, under } = snapshot;
  if (!(await isAdapter(path!)))
    return { calls: toWhole(snapshot), setsLabel: weights.labelsWithLoad, changesModels: had };
  const hasWhole = whole !== null && whole === under?.identity;
  if (!hasWhole && under?.path == null) return null;
  const replace = adapters.replace(SWAPPED_ADAPTER, path!, had && hasWhole).map((call) => ({ ...call, whole: null }));
  return { calls: hasWhole ? replace : [...toWhole(under), ...replace], setsLabel: false, changesModels: true };
}

/** Whether requests in flight must end before the engine is paused: it unloads the adapter that they use. */
export const mustDrain = ({ kind, worker }: SwapEngine): boolean =>
  adapterCalls(kind).waitsToUnload && hasAdapter(worker);
