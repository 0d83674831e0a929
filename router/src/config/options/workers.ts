import { z } from 'zod';
import { count, flag, inGroup, list } from './option.ts';

const option = inGroup('Workers');

/** Names of the forms in which the worker endpoints answer; `admin/workers/` has a file for what differs. */
const workerApis = ['slime', 'sglang', 'vllm'] as const;
export type WorkerApi = (typeof workerApis)[number];

export const workersOptions = {
  workerUrls: option(
    '<urls...>',
    z.array(z.string().min(1)).default([]),
    'Engines to route to, http://host:port each (http://host:port@2: its data-parallel rank 2, @4-7: each of these ranks), separated by spaces or commas. More can be added while running.',
    { isCommon: true },
  ),
  dpAware: option(
    '',
    flag,
    'Ask engines how many data-parallel ranks they have, and make each rank of an engine whose URL names none a worker of its own.',
    { needsRestart: true },
  ),
  intraNodeDataParallelSize: option(
    '<count>',
    z.int().min(1).max(1_024).default(1),
    'Data-parallel ranks of every engine whose URL names none: each is a worker, numbered from 0. Nobody is asked.',
    { needsRestart: true },
  ),
  workerApi: option(
    '<form>',
    z.enum(workerApis).default('slime'),
    'Whose answers the worker and probe endpoints give: slime (SlimeRouter’s, and the SGLang gateway’s on /workers), sglang (older SGLang routers’ text on /add_worker) or vllm (vllm-router’s everywhere).',
    { needsRestart: true },
  ),
  pdDisaggregation: option(
    '',
    flag,
    'Serve every request by a pair: a prefill engine and a decode engine (SGLang with --disaggregation-mode).',
    { needsRestart: true },
  ),
  vllmPdDisaggregation: option(
    '',
    flag,
    'Serve requests by pairs of vLLM engines: a prefill engine reads the prompt and hands its KV to a decode engine (--kv-transfer-config).',
    { needsRestart: true },
  ),
  kvConnector: option(
    '<name>',
    z.enum(['nixl', 'mooncake']).default('nixl'),
    'With --vllm-pd-disaggregation: what the engines hand KV over with. nixl: the prefill engine first. mooncake: both at once; the port that follows a prefill URL is that of its bootstrap server, 8998 without one.',
    { needsRestart: true },
  ),
  pdMinPromptTokens: option(
    '<count>',
    count.default(0),
    'With --vllm-pd-disaggregation: prompts of fewer tokens (ids; 4 bytes of text count as one) go to a decode engine alone, which reads them itself. 0: none do.',
  ),
  prefill: option(
    '<urls...>',
    list,
    'Prefill engines. The bootstrap port of one may follow its URL, or the word none: --prefill http://a:30000 8998 http://b:30000.',
  ),
  decode: option('<urls...>', list, 'Decode engines.'),
  connectTimeoutMs: option(
    '<ms>',
    z.int().min(1).default(5_000),
    'How long connecting to an engine may take before the next one is tried.',
  ),
  workerIdleTimeoutMs: option(
    '<ms>',
    z.int().min(1).default(4_000),
    'Idle connections to engines are closed after this long; keep it below the engines own (uvicorn: 5000).',
  ),
} as const;
