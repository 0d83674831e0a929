import type { Exchange } from '../exchange.ts';
import { type ExchangeLogOptions, attemptLog, exchangeLog } from './exchange-log.ts';
import type { ExchangeRows } from './exchange-rows.ts';
import type { Logger } from './log.ts';
import type { Observer } from './observer.ts';
import { RefusalLog } from './refusal-log.ts';
import { WaitWatch } from './wait-watch.ts';

/** Everything that is logged about single requests. */
export class RequestLogs {
  readonly observers: readonly Observer[];
  readonly refusals: RefusalLog;
  readonly #waits: WaitWatch;

  /** @param requests those in flight */
  constructor(log: Logger, options: ExchangeLogOptions, rows: ExchangeRows, requests: () => Iterable<Exchange>) {
    this.refusals = new RefusalLog(log, options);
    this.#waits = new WaitWatch(log, options, requests);
    this.observers = [this.refusals, attemptLog(log), pluginHints(log)];
    rows.listen(exchangeLog(log, options));
  }

  sweep(nowMs: number): void {
    this.refusals.sweep(nowMs);
    this.#waits.sweep(nowMs);
  }

  close(): void {
    this.refusals.close();
  }
}

/** Endpoints of built-in plugins and the options that load them. Without these such a request goes to an engine. */
const served: readonly [path: RegExp, options: string][] = [
  [/^\/(retrieve_from_text|radix_tree)(\/|$)/, '--plugin radix-tree'],
  [/^\/sessions(\/|$)/, '--plugin chat-sessions'],
  [/^\/trajectories(\/|$)/, '--plugin radix-tree, --plugin chat-sessions or --capture-chat'],
];

/** Logs once per option why a request for a plugin's endpoint got an engine's 404. */
function pluginHints(log: Logger): Observer {
  const hinted = new Set<string>();
  return {
    finished({ path, status, head, worker }) {
      if (status !== 404 || worker === null) return;
      const found = served.find(([pattern]) => pattern.test(path));
      if (found === undefined || hinted.has(found[1])) return;
      hinted.add(found[1]);
      log.warn(`${head.method} ${path} was answered 404 by an engine: the router serves it with ${found[1]}`);
    },
  };
}
