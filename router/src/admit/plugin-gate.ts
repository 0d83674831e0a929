import type { Exchange } from '../exchange.ts';
import { RouterError } from '../kit/errors.ts';
import { type Plugin, type PluginRefusal, pluginError, takePart } from '../plugin.ts';
import type { GoOn } from './admission.ts';

/** Where an exchange meets its plugins: which of them take part, what they say it is, and whether they let it in. */
export class PluginGate {
  readonly #plugins: readonly Plugin[];

  /** @param plugins may grow while the router runs */
  constructor(plugins: readonly Plugin[]) {
    this.#plugins = plugins;
  }

  get isEmpty(): boolean {
    return this.#plugins.length === 0;
  }

  /** Calls `goOn`: at once, unless a plugin takes its time. Not at all when the exchange is over by then. */
  enter(x: Exchange, goOn: GoOn): void {
    const failure = takePart(x, this.#plugins);
    if (failure !== null || !x.plugins.some(({ classify, admit }) => classify ?? admit)) goOn(x, failure);
    else
      void meet(x).then((refusal) => {
        if (x.outcome === null) goOn(x, refusal);
      });
  }
}

/** @returns why it doesn't go on; null: it does */
async function meet(x: Exchange): Promise<RouterError | null> {
  for (const plugin of x.plugins) {
    try {
      const asked = plugin.classify?.(x);
      if (asked instanceof Promise) await asked;
    } catch (error) {
      return pluginError(plugin, error);
    }
  }
  for (const plugin of x.plugins) {
    try {
      const asked = plugin.admit?.(x);
      // A function without a return lets it in too.
      const refusal = (asked instanceof Promise ? await asked : asked) ?? null;
      if (refusal !== null) return refused(refusal);
    } catch (error) {
      return pluginError(plugin, error);
    }
  }
  return null;
}

const refused = ({ status, message, retryAfterSecs = 0 }: PluginRefusal): RouterError =>
  new RouterError('plugin_refused', message, { status, retryAfterSecs });
