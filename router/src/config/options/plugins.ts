import { z } from 'zod';
import { splitPlugins } from '../split-list.ts';
import { count, inGroup } from './option.ts';

const option = inGroup('Plugins');

export const pluginsOptions = {
  plugin: option(
    '<plugins...>',
    z.array(z.string().min(1)).default([]),
    'What takes part in requests and answers: the name of a built-in plugin, the path of a module (./mine.ts) or an npm package, with its options behind it: ./mine.ts:{"limit":8}.',
    { split: splitPlugins, needsRestart: true, isCommon: true },
  ),
  pluginTimeoutMs: option(
    '<ms>',
    count.min(1).max(3_600_000).default(5_000),
    'So long a plugin may take for its part of a request; then the request fails with 500 and its name.',
  ),
} as const;
