import { STATUS_CODES } from 'node:http';
import type { Exchange } from '../exchange.ts';
import { RouterError } from '../kit/errors.ts';
import { type Plugin, type PluginAnswer, type PluginRefusal, pluginError, takePart } from '../plugin.ts';
import { type ResponseHead, ownHead } from '../wire/response-head.ts';
import { sendInParts } from '../wire/send-in-parts.ts';
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

  /**
   * Calls `goOn`: at once, unless a plugin takes its time. Not at all when the exchange is over by then, or a plugin answers it
   * itself: then `listener` is told.
   */
  enter(x: Exchange, goOn: GoOn, listener: AnswerListener): void {
    const failure = takePart(x, this.#plugins);
    if (failure !== null || !x.plugins.some(({ classify, admit, answer }) => classify ?? admit ?? answer))
      goOn(x, failure);
    else
      void meet(x).then((met) => {
        if (x.outcome !== null) return;
        if (met === null || met instanceof RouterError) goOn(x, met);
        else send(x, met, listener);
      });
  }
}

/** Who hears of answers that are not an engine's. */
export interface AnswerListener {
  onAnswerBegins(x: Exchange, head: ResponseHead): void;
  onComplete(x: Exchange): void;
}

function send(x: Exchange, { status, contentType, body }: PluginAnswer, listener: AnswerListener): void {
  const head = ownHead(status, STATUS_CODES[status] ?? '', `content-type: ${contentType}\r\n`, body.length);
  x.isAnswerOut = true;
  listener.onAnswerBegins(x, head);
  x.sink.head(head);
  const isWanted = (): boolean => x.outcome === null;
  sendInParts(x.sink, body, isWanted, () => {
    x.sink.end();
    listener.onComplete(x);
  });
}

/** @returns why it doesn't go on, or the answer to it; null: it goes on */
async function meet(x: Exchange): Promise<RouterError | PluginAnswer | null> {
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
  for (const plugin of x.plugins) {
    try {
      const asked = plugin.answer?.(x);
      const answer = (asked instanceof Promise ? await asked : asked) ?? null;
      if (answer !== null) return answer;
    } catch (error) {
      return pluginError(plugin, error);
    }
  }
  return null;
}

const refused = ({ status, message, retryAfterSecs = 0 }: PluginRefusal): RouterError =>
  new RouterError('plugin_refused', message, { status, retryAfterSecs });
