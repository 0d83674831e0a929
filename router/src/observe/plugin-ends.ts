import type { Logger } from './log.ts';
import type { Observer } from './observer.ts';

/** Tells an exchange's plugins that it is over. One that throws here is logged and harms nobody. */
export function pluginEnds(log: Logger): Observer {
  return {
    finished(x) {
      for (const plugin of x.plugins) {
        try {
          plugin.finished?.(x);
        } catch (error) {
          log.error({ plugin: plugin.name, error: String(error) }, 'plugin failed in finished');
        }
      }
    },
  };
}
