import * as z from 'zod';
import { splitPlugins } from '../split-list.ts';
import { count, inGroup } from './option.ts';

const option = inGroup('Plugins');

export const pluginsOptions = {
  plugin: option(
    '<plugins...>',
    z.array(z.string().min(1)).default([]),
    'Plugins to load: the name of a built-in one (radix-tree, chat-sessions), the path of a module (./mine.ts) or an npm package. Options follow a colon: ./mine.ts:{"limit":8}.',
    { split: splitPlugins, needsRestart: true, isCommon: true },
  ),
  pluginTimeoutMs: option(
    '<ms>',
    count.min(1).max(3_600_000).default(5_000),
    'Timeout of each plugin phase of a request; after it the request fails with 500 and the name of the plugin.',
  ),
} as const;
