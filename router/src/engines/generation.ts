import { SKYRL_PATH } from './dialects/dialects.ts';

/** Paths that use the tokenizer and the processors of images alone: SGLang 0.5.23, vLLM 0.33.0. */
const tokenizing = [
  '/cohere/v2/chat/render',
  '/detokenize',
  '/tokenize',
  '/v1/chat/completions/derender',
  '/v1/chat/completions/render',
  '/v1/completions/derender',
  '/v1/completions/render',
  '/v1/detokenize',
  '/v1/messages/count_tokens',
  '/v1/messages/render',
  '/v1/responses/render',
  '/v1/tokenize',
];

/** Paths that read a prompt and sample nothing of it, or sample from a recording: no turn of a session continues them. */
const reading = [
  '/classify',
  '/encode',
  '/generative_scoring',
  '/pooling',
  '/rerank',
  '/score',
  '/v1/audio/transcriptions',
  '/v1/audio/translations',
  '/v1/classify',
  '/v1/embeddings',
  '/v1/rerank',
  '/v1/score',
  '/v2/embed',
  '/v2/rerank',
];

/**
 * Paths of engines that change no state: SGLang 0.5.23, vLLM 0.33.0, the OpenAI API. Such a request may be retried on another worker, and
 * an engine that fails it is broken, whatever its health path says. Not /v1/decisions and /v1/systemone, which refuse a member that they do
 * not know, as that of a prompt-cache namespace.
 */
const paths: ReadonlySet<string> = new Set([
  ...tokenizing,
  ...reading,
  '/api/chat',
  '/api/generate',
  '/cohere/v2/chat',
  '/generate',
  '/inference/v1/generate',
  '/invocations',
  SKYRL_PATH,
  '/v1/chat/completions',
  '/v1/chat/completions/batch',
  '/v1/completions',
  '/v1/messages',
  '/v1/responses',
  '/vertex_generate',
]);

export const isGeneration = (method: string, path: string): boolean => method === 'POST' && paths.has(path);

/** Safe methods (RFC 9110 section 9.2.1): a request may always be retried. */
export const isSafe = (method: string): boolean => method === 'GET' || method === 'HEAD' || method === 'OPTIONS';

/** Paths that only report an engine's state: SGLang 0.5.23, vLLM 0.32.0, the OpenAI API. No limit applies to them. */
const metadata: ReadonlySet<string> = new Set([
  '/get_load',
  '/get_model_info',
  '/get_server_info',
  '/get_world_size',
  '/health_generate',
  '/is_paused',
  '/is_sleeping',
  '/load',
  '/model_info',
  '/ping',
  '/ready',
  '/server_info',
  '/tokenizer_info',
  '/v1/loads',
  '/v1/models',
  '/version',
  '/weight_info',
]);

/** What a request leaves in the KV cache of its engine: nothing; a prompt, which no session continues; or the context of its session. */
export type CacheUse = 'nothing' | 'prompt' | 'turn';

const cacheUses: ReadonlyMap<string, CacheUse> = new Map([
  ...tokenizing.map((path) => [path, 'nothing'] as const),
  ...reading.map((path) => [path, 'prompt'] as const),
]);

/** A path that is not known is taken for that of a turn. */
export const cacheUseOf = (method: string, path: string): CacheUse =>
  isSafe(method) ? 'nothing' : (cacheUses.get(path) ?? 'turn');

export const asksMetadata = (method: string, path: string): boolean =>
  isSafe(method) && (metadata.has(path) || path.startsWith('/v1/models/'));
