import { sessionOf } from '../classify/routing-keys.ts';
import type { Exchange } from '../exchange.ts';
import type { RouterError } from '../kit/errors.ts';
import { LineLimit } from './line-limit.ts';
import type { Logger } from './log.ts';
import type { Observer } from './observer.ts';

/** Lines per error code and minute; the others are counted. */
const LINES_PER_MINUTE = 10;

/** Logs a warning for every request that the router refused and every truncated response. */
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
    // All failures of a hung engine are logged: they are rare, and each client must be found.
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

  /** A request that was refused before its head was complete. */
  refusedHead({ code, status, message }: RouterError, path: string): void {
    if (!this.#limit.take(code, performance.now())) return;
    this.#log.warn({ path, code, status, bytesSent: 0, detail: message }, 'request refused');
  }

  sweep(nowMs: number): void {
    this.#limit.sweep(nowMs);
  }

  /** Logs what is summed up so far. */
  close(): void {
    this.#limit.flush();
  }
}
