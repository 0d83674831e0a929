/** vLLM's control endpoints, including those of its development mode. */

import type { HttpCall } from './http-call.ts';
import { inferenceGenerate } from './inference.ts';
import { Problem, SchemaProblem } from './read-request.ts';
import { refuse } from './refusal.ts';
import type { Routes } from './server.ts';

export const vllmRoutes: Routes = {
  'POST /inference/v1/generate': inferenceGenerate,
  'GET /health': (call) => call.empty(),
  'GET /ping': (call) => call.empty(),
  'GET /version': (call) => call.json(200, { version: 'turnout-sim' }),
  'GET /load': (call) => call.json(200, { server_load: call.core.running + call.core.waiting }),
  'GET /weight_info': (call) => call.json(200, { weight_version: call.core.weightVersion }),
  'GET /is_paused': (call) => call.json(200, { is_paused: call.core.paused }),
  'GET /is_sleeping': (call) => call.json(200, { is_sleeping: call.core.paused || call.core.isAsleep }),
  'GET /get_world_size': (call) => call.json(200, { world_size: 1 }),
  'POST /pause': pause,
  'POST /resume': (call) => {
    call.core.resume();
    call.json(200, { status: 'resumed' });
  },
  'POST /sleep': sleep,
  'POST /wake_up': (call) => {
    call.core.isAsleep = false;
    call.core.resume();
    call.json(200, { status: 'awake', tags: null });
  },
  'POST /reset_prefix_cache': resetPrefixCache,
  'POST /abort_requests': abortRequests,
  'POST /inference/v1/abort_requests': abortOwn,
  'POST /update_weight_version': updateWeightVersion,
  'POST /collective_rpc': collectiveRpc,
};

/** Without `clear_cache=false` running requests lose their KV too, in every mode (0.20.2 to 0.33). */
async function pause(call: HttpCall): Promise<void> {
  const mode = modeOf(call);
  if (mode instanceof Problem) return refuse(call, 400, mode);
  await call.core.pause(mode);
  if (!/^(?:false|0|no|off)$/i.test(call.query.get('clear_cache') ?? '')) call.core.clearCache();
  call.json(200, { status: 'paused' });
}

function modeOf({ query }: HttpCall): 'keep' | 'wait' | 'abort' | Problem {
  const mode = query.get('mode') ?? 'abort';
  if (mode === 'keep' || mode === 'wait' || mode === 'abort') return mode;
  return new SchemaProblem(`Invalid mode '${mode}'`, 'query.mode');
}

/** It pauses too, and gives its memory back; from level 1 on that of the cache. */
async function sleep(call: HttpCall): Promise<void> {
  const level = Number(call.query.get('level') ?? 1);
  const mode = modeOf(call);
  if (mode instanceof Problem) return refuse(call, 400, mode);
  await call.core.pause(mode);
  if (level >= 1) call.core.clearCache();
  call.core.isAsleep = true;
  call.json(200, { status: 'sleeping', level });
}

/** A paused engine resets although it has KV; a busy one answers false (both measured). */
function resetPrefixCache(call: HttpCall): void {
  const { core } = call;
  const isReset = core.flushCache() || core.paused;
  if (isReset) core.scheduler.cache.flush();
  call.json(200, { success: isReset });
}

/**
 * Only the whole id that the engine made of a request's aborts anything, with all of its samples, whatever the response says; without ids
 * everything is aborted.
 */
function abortRequests(call: HttpCall): void {
  const ids = call.body.request_ids;
  const wanted = Array.isArray(ids) && ids.length > 0 ? new Set(ids as unknown[]) : null;
  const count = abortNamed(call, wanted);
  call.json(200, { status: 'aborted', aborted: wanted?.size ?? count });
}

/** On this path ids must be named, and the response says nothing. */
function abortOwn(call: HttpCall): void {
  const ids = call.body.request_ids;
  if (!Array.isArray(ids)) return refuse(call, 400, new SchemaProblem("Missing 'request_ids' in request body", null));
  abortNamed(call, new Set(ids as unknown[]));
  call.empty();
}

const abortNamed = ({ core }: HttpCall, wanted: ReadonlySet<unknown> | null): number =>
  core.abort((_, { id }) => wanted === null || wanted.has(id.replace(/^\d+_/, '')));

function updateWeightVersion(call: HttpCall): void {
  const version = call.body.new_version;
  if (typeof version !== 'string') {
    return refuse(call, 400, new SchemaProblem('new_version must be a string', 'body.new_version'));
  }
  call.core.scheduler.weightVersion = version;
  call.json(200, { success: true, new_version: version });
}

/** `reload_weights` changes the tokens and keeps the version label, as the real engine. */
async function collectiveRpc(call: HttpCall): Promise<void> {
  const { method, kwargs } = call.body;
  if (method !== 'reload_weights') return refuse(call, 500, new Problem(`unknown method ${String(method)}`));
  const path = (kwargs as { weights_path?: unknown } | undefined)?.weights_path;
  await call.core.loadWeights(typeof path === 'string' ? path : call.core.options.modelPath, undefined);
  call.json(200, { results: [null] });
}
