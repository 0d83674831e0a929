import type { Exchange } from '../exchange.ts';
import type { RouterError } from '../kit/errors.ts';
import { type Plugin, pluginError } from '../plugin.ts';
import { normalPath } from './path.ts';

type Classify = (x: Exchange) => RouterError | null;

/** @returns `classify`, behind the plugins that may put another target in place of a client's, where there are any */
export function retargeted(plugins: readonly Plugin[], classify: Classify): Classify {
  const own = plugins.filter(({ retarget }) => retarget !== undefined);
  if (own.length === 0) return classify;
  return (x) => {
    const { target } = x.head;
    let failure: RouterError | null = null;
    for (const plugin of own) {
      try {
        plugin.retarget!(x);
      } catch (error) {
        failure ??= pluginError(plugin, error);
      }
    }
    if (x.head.target !== target) x.clientPath = normalPath(target);
    return classify(x) ?? failure;
  };
}
