import { objectIn } from '../kit/json-object.ts';
import type { Reply } from './ask.ts';
import type { EngineKind } from './engine.ts';

/** A request with which the router steers an engine. */
export interface WeightCall {
  readonly path: string;
  readonly json: string;
}

/** The calls that replace the weights of an engine, in the order in which they are made. */
export interface WeightCalls {
  /** Stops generation and keeps the KV cache. @param isIdle no request of the router is in flight */
  pause(isIdle: boolean): WeightCall;
  /** @param path '': the weights that the engine was started with */
  load(path: string, identity: string): WeightCall;
  label(identity: string): WeightCall;
  readonly resume: WeightCall;
  /** Whether `load` sets the label too. */
  readonly labelsWithLoad: boolean;
}

export type WeightStep = 'pause' | 'load' | 'label' | 'resume';

/**
 * What came of a call.
 * - `refused`: the engine did not take it, and nothing has changed;
 * - `failed`: whether something has changed is not known;
 * - `other_version`: the engine reports another weight version than the one of the call, whatever it answered;
 * - `died`: the engine accepts no connections.
 */
export type CallResult = 'ok' | 'refused' | 'failed' | 'other_version' | 'died';

const call = (path: string, body: object = {}): WeightCall => ({ path, json: JSON.stringify(body) });

/**
 * vLLM 0.16 to 0.33, with VLLM_SERVER_DEV_MODE=1. `clear_cache` defaults to true, and then running requests lose their KV
 * cache in every mode (0.20.2, 0.26, 0.33), whatever the docstring says.
 */
const vllm: WeightCalls = {
  pause: (isIdle) => call(`/pause?mode=${isIdle ? 'wait' : 'keep'}&clear_cache=false`),
  load: (path) =>
    call('/collective_rpc', { method: 'reload_weights', kwargs: path === '' ? {} : { weights_path: path } }),
  label: (identity) => call('/update_weight_version', { new_version: identity }),
  resume: call('/resume'),
  labelsWithLoad: false,
};

/**
 * SGLang 0.5.6 to 0.5.23. With `flush_cache` (its default) and running requests the scheduler of 0.5.19 and older ends; the label call aborts
 * all requests unless it says otherwise.
 */
const sglang: WeightCalls = {
  pause: () => call('/pause_generation', { mode: 'in_place' }),
  load: (path, identity) =>
    call('/update_weights_from_disk', { model_path: path, weight_version: identity, flush_cache: false }),
  label: (identity) => call('/update_weight_version', { new_version: identity, abort_all_requests: false }),
  resume: call('/continue_generation'),
  labelsWithLoad: true,
};

/** null: the weights of engines of this kind can't be replaced. */
export const weightCalls: Readonly<Record<EngineKind, WeightCalls | null>> = { vllm, sglang, openai: null };

/** Statuses that say that an engine did not take a call. */
const REFUSALS: ReadonlySet<number> = new Set([401, 403, 404, 405, 422, 501]);

/** SGLang 0.5.23 answers a load with 400 and this if the weights have changed and only its cache could not be flushed. */
const HAS_LOADED = /weights were updated, but/i;

/** Whether a response says that the engine did not do it, whatever its status: vLLM's /reset_prefix_cache answers 200 then. */
export const saysFailed = (text: string): boolean =>
  text.includes('"success"') && objectIn(text)?.['success'] === false;

export function resultOf(step: WeightStep, { status, text }: Reply): CallResult {
  if (step === 'load' && HAS_LOADED.test(text)) return 'ok';
  if (status < 200 || status >= 300) return REFUSALS.has(status) ? 'refused' : 'failed';
  return saysFailed(text) ? 'failed' : 'ok';
}
