import type { Observer } from './observer.ts';

/** Tells an exchange's plugins that it is over. What one throws there is its guard's business (`plugins/guard.ts`). */
export const pluginEnds: Observer = {
  finished(x) {
    for (const plugin of x.plugins) plugin.finished?.(x);
  },
};
