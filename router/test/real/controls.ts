import { folderOf } from './installed.ts';
import type { Question } from './questions.ts';

const vllm = ['vllm'] as const;
const sglang = ['sglang'] as const;
const both = ['vllm', 'sglang'] as const;

const get = (path: string, of: Question['of']): Question => ({ name: `GET ${path}`, of, path });
const post = (path: string, of: Question['of'], body: object | string = ''): Question => ({
  name: `POST ${path} ${typeof body === 'string' ? body : JSON.stringify(body)}`.trim(),
  of,
  method: 'POST',
  path,
  body,
});

/** What routers, trainers and operators ask of engines beside tokens, in an order that leaves them as they were. */
export const controls: Question[] = [
  get('/v1/models', both),
  get('/health', both),
  get('/metrics', both),
  post('/tokenize', both, { model: 'tiny', prompt: 'Which way?' }),
  post('/detokenize', both, { model: 'tiny', tokens: [20, 30] }),
  get('/nothing-here', both),
  get('/v1/completions', both),

  get('/ping', vllm),
  get('/version', vllm),
  get('/load', vllm),
  post('/tokenize', vllm, { model: 'tiny', messages: [{ role: 'user', content: 'Which way?' }] }),
  post('/generate', vllm, { input_ids: [20, 30] }),
  get('/get_world_size', vllm),
  post('/pause?mode=keep', vllm),
  get('/is_paused', vllm),
  get('/is_sleeping', vllm),
  post('/resume', vllm),
  post('/pause?mode=sideways', vllm),
  post('/reset_prefix_cache', vllm),
  post('/abort_requests', vllm, { request_ids: ['cmpl-none-0'] }),
  post('/inference/v1/abort_requests', vllm, { request_ids: ['generate-tokens-none'] }),
  post('/inference/v1/abort_requests', vllm, {}),
  post('/update_weight_version', vllm, { new_version: 'step-1' }),
  get('/weight_info', vllm),
  post('/collective_rpc', vllm, { method: 'reload_weights', kwargs: { weights_path: folderOf('dense') } }),
  post('/collective_rpc', vllm, { method: 'no_such_method' }),
  post('/v1/load_lora_adapter', vllm, { lora_name: 'adapter' }),
  post('/v1/unload_lora_adapter', vllm, { lora_name: 'unknown' }),

  get('/ready', sglang),
  get('/health_generate', sglang),
  get('/model_info', sglang),
  get('/get_model_info', sglang),
  get('/server_info', sglang),
  get('/get_server_info', sglang),
  get('/v1/loads', sglang),
  post('/abort_request', sglang, { rid: 'nobody' }),
  post('/pause_generation', sglang, { mode: 'in_place' }),
  post('/continue_generation', sglang, {}),
  post('/pause_generation', sglang, { mode: 'sideways' }),
  post('/load_lora_adapter', sglang, { lora_name: 'adapter', lora_path: '/nowhere' }),
  post('/unload_lora_adapter', sglang, { lora_name: 'unknown' }),
  post('/flush_cache', sglang),
  get('/flush_cache', sglang),
  post('/update_weight_version', sglang, { new_version: 'step-1', abort_all_requests: false }),
  post('/update_weights_from_disk', sglang, { model_path: folderOf('dense_v2'), weight_version: 'step-2' }),
  post('/update_weights_from_disk', sglang, { model_path: folderOf('dense'), weight_version: 'default' }),
];

/** Endpoints that the simulated engine has and that no test here can ask a real one for. */
export const notAsked = new Set([
  'GET /sim/stats', // the simulation's own
  'PUT /generate', // the same handler as POST in both
  'POST /update_weights_from_tensor', // wants a trainer's processes beside it
  'POST /update_weights_from_distributed',
  'POST /sleep', // want a GPU
  'POST /wake_up',
]);
