import * as z from 'zod';
import { splitPlugins } from '../split-list.ts';
import { count, inGroup } from './option.ts';

const option = inGroup('Plugins');

/** Their modules are in `assembly/extensions.ts`; the compiler checks that the two agree. */
export const builtInPlugins = ['radix-tree', 'chat-sessions', 'feed', 'rollout-fields'] as const;
export type BuiltInPlugin = (typeof builtInPlugins)[number];

export const pluginsOptions = {
  plugin: option(
    '<plugins...>',
    z.array(z.string().min(1)).default([]),
    `Plugins to load: the name of a built-in one (${builtInPlugins.join(', ')}), the path of a module (./mine.ts) or an npm package. Options follow a colon: ./mine.ts:{"limit":8}.`,
    { split: splitPlugins, needsRestart: true, isCommon: true },
  ),
  pluginTimeoutMs: option(
    '<ms>',
    count.min(1).max(3_600_000).default(5_000),
    'Timeout of each plugin phase of a request; after it the request fails with 500 and the name of the plugin.',
  ),
} as const;
