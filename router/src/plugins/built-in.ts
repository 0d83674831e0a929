import type { PluginDefinition } from './definition.ts';

/** Plugins that come with the router: a folder and a line each. One that nobody names is not even loaded. */
export const builtIns: Readonly<Record<string, () => Promise<PluginDefinition>>> = {
  'chat-sessions': async () => (await import('./chat-sessions/index.ts')).chatSessions,
  'radix-tree': async () => (await import('./radix-tree/index.ts')).radixTree,
};

/** What replaces the middleware of other routers: built-in plugins by the names that Python knows them by. */
export const pythonNames: Readonly<Record<string, string>> = {
  'slime.router.middleware_hub.radix_tree_middleware.RadixTreeMiddleware': 'radix-tree',
};
