import * as z from 'zod';
import { count, flag, inGroup, list, ms } from './option.ts';

const option = inGroup('Workers');

/** The forms of the worker endpoints' responses; `admin/workers/` has a file for each difference. */
const workerApis = ['slime', 'sglang', 'vllm'] as const;
export type WorkerApi = (typeof workerApis)[number];

export const workersOptions = {
  workerUrls: option(
    '<urls...>',
    z.array(z.string().min(1)).default([]),
    'Engines to route to, as http://host:port, separated by spaces or commas. http://host:port@2 is data-parallel rank 2 of an engine, @4-7 are ranks 4 to 7. Engines can also be added at run time.',
    { isCommon: true },
  ),
  dpAware: option(
    '',
    flag,
    'Ask each engine for its number of data-parallel ranks and make each rank a worker, for engines whose URL names no rank.',
    { needsRestart: true },
  ),
  intraNodeDataParallelSize: option(
    '<count>',
    z.int().min(1).max(1_024).default(1),
    'Number of data-parallel ranks of every engine whose URL names no rank: each rank is a worker, numbered from 0. Engines are not asked.',
    { needsRestart: true },
  ),
  workerApi: option(
    '<form>',
    z.enum(workerApis).default('slime'),
    'Response format of the worker and health endpoints: slime (SlimeRouter, and SGLang gateway on /workers), sglang (text of older SGLang routers on /add_worker) or vllm (vllm-router).',
    { needsRestart: true },
  ),
  pdDisaggregation: option(
    '',
    flag,
    'Serve every request with a pair of SGLang engines: a prefill engine and a decode engine (--disaggregation-mode).',
    { needsRestart: true },
  ),
  vllmPdDisaggregation: option(
    '',
    flag,
    'Serve requests with pairs of vLLM engines: a prefill engine computes the KV cache of the prompt and transfers it to a decode engine (--kv-transfer-config).',
    { needsRestart: true },
  ),
  kvConnector: option(
    '<name>',
    z.enum(['nixl', 'mooncake']).default('nixl'),
    'With --vllm-pd-disaggregation: how KV caches are transferred. nixl: the prefill engine gets the request first. mooncake: both engines get it at once; a port after a prefill URL is that of its bootstrap server (default 8998).',
    { needsRestart: true },
  ),
  pdMinPromptTokens: option(
    '<count>',
    count.default(0),
    'With --vllm-pd-disaggregation: shorter prompts are served by a decode engine alone (tokens; 4 bytes of text count as one). 0: every prompt uses a pair.',
  ),
  prefill: option(
    '<urls...>',
    list,
    'Prefill engines. Each URL may be followed by its bootstrap port or the word none: --prefill http://a:30000 8998 http://b:30000.',
  ),
  decode: option('<urls...>', list, 'Decode engines.'),
  connectTimeoutMs: option('<ms>', ms.min(1).default(5_000), 'Timeout for connecting to an engine.'),
  workerIdleTimeoutMs: option(
    '<ms>',
    ms.min(1).default(4_000),
    'Idle connections to engines are closed after this time. Keep it below the keep-alive timeout of the engines (uvicorn: 5000).',
  ),
} as const;
