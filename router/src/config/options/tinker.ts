import * as z from 'zod';
import { count, flag, inGroup, secs } from './option.ts';

const option = inGroup('Tinker');

export const tinkerOptions = {
  tinker: option(
    '',
    flag,
    'Serve the sampling half of the Tinker API under /api/v1: the tinker SDK, with this router as its base_url, samples from the fleet.',
    { needsRestart: true },
  ),
  tinkerWeights: option(
    '<path>',
    z
      .string()
      .regex(/\{checkpoint\}/, 'must contain {checkpoint}, for example /ckpt/{model_id}/{checkpoint}')
      .optional(),
    'Where the checkpoints of tinker:// paths are, as this router and the engines see it: /ckpt/{model_id}/{checkpoint}. An archive, /ckpt/{model_id}/{checkpoint}.tar.gz, is unpacked beside itself. LoRA adapters are loaded on a worker before its first sample with them.',
    { needsRestart: true },
  ),
  tinkerTrainer: option(
    '<url>',
    z.url({ protocol: /^https?$/ }).optional(),
    'The Tinker server that trains. Requests that are not about sampling are forwarded to it, and sampling sessions that it creates are sampled here.',
    { needsRestart: true },
  ),
  tinkerVllmApi: option(
    '<api>',
    z.enum(['completions', 'generate']).default('completions'),
    'How vLLM engines are asked for Tinker samples: completions (/v1/completions) or generate (/inference/v1/generate, for engines that serve token ids only).',
  ),
  tinkerMaxSamples: option(
    '<count>',
    count.min(1).default(20_000),
    'Maximum Tinker samples of each API key that are open: in flight, or finished and not fetched yet. Further ones get 429, which the SDK retries.',
  ),
  tinkerRetrySecs: option(
    '<secs>',
    secs.default(600),
    'How long a Tinker sample is retried when engines fail, abort it or are not available. Then the sample fails.',
  ),
  tinkerPollSecs: option(
    '<secs>',
    z.number().min(0.01).max(40).default(30),
    'How long a request for a result waits for it. Then it gets 408, and the SDK asks again. Clients end requests after 45 s.',
  ),
  tinkerSessionTimeoutSecs: option(
    '<secs>',
    secs.min(30).default(3600),
    'Tinker sessions without a heartbeat or a request for this long expire, with their sampling sessions.',
  ),
} as const;
