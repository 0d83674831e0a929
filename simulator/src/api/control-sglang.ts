/** SGLang's control endpoints. */

import { sglangAdapters } from './adapters.ts';
import type { HttpCall } from './http-call.ts';
import { SchemaProblem } from './read-request.ts';
import { refuse } from './refusal.ts';
import type { Routes } from './server.ts';
import { generate } from './sglang-generate.ts';

export const sglangRoutes: Routes = {
  'POST /generate': generate,
  'PUT /generate': generate,
  'GET /health': health,
  'GET /health_generate': health,
  'GET /ready': (call) => call.empty(call.core.paused ? 503 : 200),
  'GET /model_info': modelInfo,
  'GET /get_model_info': modelInfo,
  'GET /server_info': serverInfo,
  'GET /get_server_info': serverInfo,
  'GET /v1/loads': loads,
  'POST /flush_cache': flushCache,
  'GET /flush_cache': flushCache,
  'POST /abort_request': abortRequest,
  'POST /pause_generation': pauseGeneration,
  'POST /continue_generation': (call) => {
    call.core.resume();
    call.json(200, { message: 'Generation continued successfully.', status: 'ok' });
  },
  'POST /update_weight_version': updateWeightVersion,
  'POST /update_weights_from_disk': updateWeights,
  'POST /update_weights_from_tensor': updateWeights,
  'POST /update_weights_from_distributed': updateWeights,
  'POST /load_lora_adapter': sglangAdapters.load,
  'POST /unload_lora_adapter': sglangAdapters.unload,
};

/** The real engine generates a token, so it is slow when busy, and answers 503 while paused. */
function health(call: HttpCall): void {
  const { options, paused, running } = call.core;
  const awakeMs = running > 0 ? Math.max(options.healthDelayMs, options.busyHealthDelayMs) : options.healthDelayMs;
  const ms = paused ? options.pausedHealthDelayMs : awakeMs;
  if (ms <= 0) return call.empty(paused ? 503 : 200);
  setTimeout(() => call.empty(call.core.paused ? 503 : 200), ms).unref();
}

function modelInfo(call: HttpCall): void {
  const { core } = call;
  call.json(200, {
    model_path: core.modelPath,
    tokenizer_path: core.options.modelPath,
    is_generation: true,
    preferred_sampling_params: null,
    weight_version: core.weightVersion,
    has_image_understanding: false,
    has_audio_understanding: false,
    model_type: 'turnout-sim',
    disaggregation_mode: core.options.disaggregationMode,
    served_model_name: core.servedName,
  });
}

function serverInfo(call: HttpCall): void {
  const { core } = call;
  const { options } = core;
  call.json(200, {
    model_path: core.modelPath,
    served_model_name: options.model,
    tp_size: 1,
    dp_size: 1,
    page_size: options.blockTokens,
    max_total_num_tokens: core.kvTokensTotal,
    max_running_requests: options.maxRunning,
    context_length: options.maxModelTokens,
    random_seed: options.seed,
    weight_version: core.weightVersion,
    enable_lora: options.loraLoading || null,
    enable_return_routed_experts: options.experts > 0,
    incremental_streaming_output: options.incrementalStreamingOutput,
    disaggregation_mode: options.disaggregationMode,
    disaggregation_bootstrap_port: 8998,
    kv_events: null,
    version: 'turnout-sim',
    // The real engine has how long the parts of its start took. No two starts take equally long.
    startup_time: { scheduler_e2e: core.startedAt },
    internal_states: [
      {
        memory_usage: { token_capacity: core.kvTokensTotal },
        effective_max_running_requests_per_dp: options.maxRunning,
      },
    ],
  });
}

function loads(call: HttpCall): void {
  const { core } = call;
  const { scheduler } = core;
  const waiting = [...scheduler.waiting, ...scheduler.held];
  const waitingTokens = waiting.reduce((sum, sequence) => sum + sequence.length, 0);
  const used = core.kvTokensRead;
  const load = {
    dp_rank: 0,
    num_running_reqs: core.running,
    num_waiting_reqs: core.waiting,
    num_waiting_uncached_tokens: waitingTokens,
    num_used_tokens: used,
    num_total_tokens: used + waitingTokens,
    max_total_num_tokens: core.kvTokensTotal,
    max_running_requests: core.options.maxRunning,
    token_usage: used / core.kvTokensTotal,
    gen_throughput: 0,
    cache_hit_rate: scheduler.promptTokens > 0 ? scheduler.cachedTokens / scheduler.promptTokens : 0,
    utilization: core.running / core.options.maxRunning,
    disaggregation: { mode: 'null' },
    queues: { waiting: core.waiting, grammar: 0, paused: 0, retracted: 0, prealloc_ready: 0 },
  };
  call.json(200, {
    timestamp: new Date().toISOString(),
    version: 'turnout-sim',
    accelerator: 'simulated',
    num_accelerators: 1,
    loads: [load],
  });
}

/** The real engine sends no content type. */
function flushCache(call: HttpCall): void {
  const isFlushed = call.core.flushCache();
  const text =
    'Cache flushed.\nPlease check backend logs for more details. ' +
    '(When there are running or waiting requests, the operation will not be performed.)\n';
  call.send(isFlushed ? 200 : 400, null, isFlushed ? text : 'Flush cache failed.\n');
}

/** 200 and an empty body even if nothing matched, as the real engine. */
function abortRequest(call: HttpCall): void {
  const { rid, abort_all: all } = call.body;
  if (all === true) call.core.abort(() => true);
  else if (typeof rid === 'string') call.core.abort((job, sequence) => job.id === rid || sequence.id === rid);
  call.empty();
}

const pauseModes = new Map<unknown, 'abort' | 'keep' | 'retract'>([
  [undefined, 'abort'],
  ['abort', 'abort'],
  ['in_place', 'keep'],
  ['retract', 'retract'],
]);

async function pauseGeneration(call: HttpCall): Promise<void> {
  const mode = pauseModes.get(call.body.mode);
  if (!mode) return refuse(call, 400, new SchemaProblem('mode must be abort, in_place or retract', 'body.mode'));
  await call.core.pause(mode);
  call.json(200, { message: 'Generation paused successfully.', status: 'ok' });
}

function updateWeightVersion(call: HttpCall): void {
  const version = call.body.new_version;
  if (typeof version !== 'string') {
    return refuse(call, 400, new SchemaProblem('new_version must be a string', 'body.new_version'));
  }
  if (call.body.abort_all_requests !== false) call.core.abort(() => true);
  call.core.scheduler.weightVersion = version;
  call.json(200, {
    success: true,
    message: `Weight version updated to ${version}`,
    new_version: version,
  });
}

/** Weights from a trainer's memory have no path, so the version names them: all engines then make the same tokens. */
async function updateWeights(call: HttpCall): Promise<void> {
  const { core, body } = call;
  const version = typeof body.weight_version === 'string' ? body.weight_version : undefined;
  const isDisk = body.model_path !== undefined;
  if (isDisk && typeof body.model_path !== 'string') {
    return refuse(call, 400, new SchemaProblem('model_path must be a string', 'body.model_path'));
  }
  const path = isDisk ? (body.model_path as string) : `weights ${version ?? 'unnamed'}`;
  if (body.abort_all_requests === true) core.abort(() => true);
  await core.loadWeights(path, version);
  // As in 0.5.23: the path becomes the name of the model, except in /server_info.
  if (isDisk) core.servedName = path;
  const isFlushed = body.flush_cache === false || core.flushCache();
  const message = isFlushed
    ? 'Succeeded to update model weights.'
    : 'Weights were updated, but the cache was not flushed because requests are running.';
  call.json(isFlushed ? 200 : 400, {
    success: isFlushed,
    message: version === undefined ? message : `${message} Weight version updated to ${version}.`,
    ...(isDisk ? { num_paused_requests: 0 } : {}),
  });
}
