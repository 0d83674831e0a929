/**
 * Paths of engines that run a model and change no state: SGLang 0.5.23, vLLM 0.33.0, the OpenAI API. Such a request may
 * be retried on another worker, and an engine that fails it is broken, whatever its health path says. Not /v1/decisions and
 * /v1/systemone, which refuse a member that they do not know, as that of a prompt-cache namespace.
 */
const paths: ReadonlySet<string> = new Set([
  '/api/chat',
  '/api/generate',
  '/classify',
  '/cohere/v2/chat',
  '/detokenize',
  '/encode',
  '/generate',
  '/generative_scoring',
  '/inference/v1/generate',
  '/invocations',
  '/pooling',
  '/rerank',
  '/score',
  '/tokenize',
  '/v1/audio/transcriptions',
  '/v1/audio/translations',
  '/v1/chat/completions',
  '/v1/chat/completions/batch',
  '/v1/classify',
  '/v1/completions',
  '/v1/detokenize',
  '/v1/embeddings',
  '/v1/messages',
  '/v1/messages/count_tokens',
  '/v1/rerank',
  '/v1/responses',
  '/v1/score',
  '/v1/tokenize',
  '/v2/embed',
  '/v2/rerank',
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

/** Paths that use the tokenizer alone: SGLang 0.5.23, vLLM 0.33.0. */
const tokenizing: ReadonlySet<string> = new Set([
  '/detokenize',
  '/tokenize',
  '/v1/detokenize',
  '/v1/messages/count_tokens',
  '/v1/tokenize',
]);

/** Whether the request may fill the KV cache of its engine. Of a path that is not known it is taken to be so. */
export const mayFillCache = (method: string, path: string): boolean => !isSafe(method) && !tokenizing.has(path);

export const asksMetadata = (method: string, path: string): boolean =>
  isSafe(method) && (metadata.has(path) || path.startsWith('/v1/models/'));
