import { z } from 'zod';
import { count, inGroup } from './option.ts';

const option = inGroup('Trajectories');

export const tokensOptions = {
  tokenizerPath: option(
    '<path>',
    z.string().min(1).optional(),
    "The model's tokenizer.json, or the folder it is in: what exact tokens need.",
    { needsRestart: true, isCommon: true },
  ),
  radixMaxCacheSize: option(
    '<nodes>',
    count.min(1).default(10_000),
    'Nodes that the trees of tokens may have, about two a turn; the least recently used go.',
    { needsRestart: true },
  ),
  radixMaxBytes: option(
    '<bytes>',
    count.min(65_536).default(1_073_741_824),
    'Memory that the trees of tokens may take.',
    { needsRestart: true },
  ),
  radixGcThresholdK: option(
    '<versions>',
    count.min(1).default(5),
    'Nodes that only weights so many versions older than the newest used are removed.',
    { needsRestart: true },
  ),
} as const;
