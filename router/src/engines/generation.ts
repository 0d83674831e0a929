/**
 * Paths of engines that do a model's work and change nothing that lasts: SGLang 0.5.23, vLLM 0.32.0, the OpenAI API. The same
 * work may be asked for again elsewhere, and an engine that fails at it is broken, whatever its health path says.
 */
const paths: ReadonlySet<string> = new Set([
  '/classify',
  '/detokenize',
  '/encode',
  '/generate',
  '/inference/v1/generate',
  '/invocations',
  '/pooling',
  '/rerank',
  '/score',
  '/tokenize',
  '/v1/audio/transcriptions',
  '/v1/audio/translations',
  '/v1/chat/completions',
  '/v1/classify',
  '/v1/completions',
  '/v1/detokenize',
  '/v1/embeddings',
  '/v1/messages',
  '/v1/rerank',
  '/v1/responses',
  '/v1/score',
  '/v1/tokenize',
  '/v2/rerank',
]);

export const isGeneration = (method: string, path: string): boolean => method === 'POST' && paths.has(path);

/** Methods that only look (RFC 9110 section 9.2.1): a request with one may always be sent again. */
export const isSafe = (method: string): boolean => method === 'GET' || method === 'HEAD' || method === 'OPTIONS';

/** What engines report of themselves: SGLang 0.5.23, vLLM 0.32.0, the OpenAI API. It takes no time of theirs, so no limit holds for it. */
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

/** A request that reads what an engine reports of itself: the models that it serves, for example. */
export const asksMetadata = (method: string, path: string): boolean =>
  isSafe(method) && (metadata.has(path) || path.startsWith('/v1/models/'));
