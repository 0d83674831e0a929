import { sessionOf } from '../classify/keys.ts';
import type { Exchange } from '../exchange.ts';
import type { RouterError } from '../kit/errors.ts';
import { LineLimit } from './line-limit.ts';
import type { Logger } from './log.ts';
import type { Observer } from './observer.ts';

/** Lines for one error code in a minute; the others are counted. */
const LINES_PER_MINUTE = 10;

/** Warns of every request that the router refused and every answer that was truncated, at any level up to warning. */
export class RefusalLog implements Observer {
  readonly #log: Logger;
  readonly #options: { readonly sessionHeaders: readonly string[] };
  readonly #limit: LineLimit;

  constructor(log: Logger, options: { readonly sessionHeaders: readonly string[] }) {
    this.#log = log;
    this.#options = options;
    this.#limit = new LineLimit(LINES_PER_MINUTE, (code, count) =>
      log.warn({ code, count }, 'more requests were refused or truncated with this code'),
    );
  }

  finished(x: Exchange): void {
    if (x.outcome !== 'cut' && x.outcome !== 'refused') return;
    const code = x.error?.code ?? 'plugin_failed';
    // Each answer that a hung engine leaves behind is written: it happens once, and its client has to be found.
    if (code !== 'engine_hung' && !this.#limit.take(code, performance.now())) return;
    const session = sessionOf(x, this.#options.sessionHeaders);
    this.#log.warn(
      {
        requestId: x.head.requestId,
        method: x.head.method,
        path: x.clientPath || x.path,
        ...(session === '' ? {} : { session }),
        worker: x.worker?.url ?? null,
        code,
        status: x.status,
        bytesSent: x.outcome === 'cut' ? x.answerBytes : 0,
        ms: Math.round(x.endMs - x.startMs),
        ...(x.error === null ? {} : { detail: x.error.message }),
      },
      x.outcome === 'cut' ? 'answer truncated' : 'request refused',
    );
  }

  /** A request that was refused before its head was read to the end. */
  refusedHead({ code, status, message }: RouterError, path: string): void {
    if (!this.#limit.take(code, performance.now())) return;
    this.#log.warn({ path, code, status, bytesSent: 0, detail: message }, 'request refused');
  }

  sweep(nowMs: number): void {
    this.#limit.sweep(nowMs);
  }

  /** Sums up what was not written. */
  close(): void {
    this.#limit.flush();
  }
}
