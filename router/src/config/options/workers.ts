import { z } from 'zod';
import { flag, inGroup, list } from './option.ts';

const option = inGroup('Workers');

export const workersOptions = {
  workerUrls: option(
    '<urls...>',
    z.array(z.string().min(1)).default([]),
    'Engines to route to, http://host:port each (http://host:port@2: its data-parallel rank 2), separated by spaces or commas. More can be added while running.',
  ),
  pdDisaggregation: option(
    '',
    flag,
    'Serve every request by a pair: a prefill engine and a decode engine (SGLang with --disaggregation-mode).',
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
