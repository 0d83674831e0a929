import { z } from 'zod';
import { count, inGroup } from './option.ts';

const option = inGroup('Trajectories');

export const tokensOptions = {
  tokenizerPath: option(
    '<path>',
    z.string().min(1).optional(),
    "The model's tokenizer.json or its folder. Exact tokens need it.",
    { needsRestart: true, isCommon: true },
  ),
  radixMaxCacheSize: option(
    '<nodes>',
    count.min(1).optional(),
    'A limit for the number of nodes in the trees of tokens, about two a turn. Unset: --radix-max-bytes alone limits them.',
    { needsRestart: true },
  ),
  radixMaxBytes: option(
    '<bytes>',
    count.min(65_536).optional(),
    'Memory that the trees of tokens may take; unset: 10 % of the RAM or of the cgroup limit, at most 8 GiB. Turns of the sessions used longest ago are evicted first.',
    { needsRestart: true },
  ),
  radixGcThresholdK: option(
    '<versions>',
    count.min(1).default(5),
    'Tree nodes that were only used with weights this many versions older than the newest are removed once they were not used for an hour.',
    { needsRestart: true },
  ),
} as const;
