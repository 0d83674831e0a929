import type { SessionHomes } from '../choose/session-homes.ts';
import { sessionOf } from '../classify/routing-keys.ts';
import type { Exchange } from '../exchange.ts';
import { REASONS } from '../fleet/worker.ts';
import type { Logger } from './log.ts';
import { type WaitRow, waitsOf } from './waits.ts';

/** A request waits for long after this time, and a stream is silent. */
const LONG_MS = 30_000;
const REPEAT_MS = 30_000;

/** Logs a warning while requests are held or queued for long, or wait at an unhealthy worker. */
export class WaitWatch {
  readonly #log: Logger;
  readonly #options: { readonly sessionHeaders: readonly string[] };
  readonly #requests: () => Iterable<Exchange>;
  readonly #homes: SessionHomes;
  #saidMs = -Infinity;

  constructor(
    log: Logger,
    options: { readonly sessionHeaders: readonly string[] },
    requests: () => Iterable<Exchange>,
    homes: SessionHomes,
  ) {
    this.#log = log;
    this.#options = options;
    this.#requests = requests;
    this.#homes = homes;
  }

  sweep(nowMs: number): void {
    if (nowMs - this.#saidMs < REPEAT_MS) return;
    const waiting: Exchange[] = [];
    const silent: Exchange[] = [];
    for (const x of this.#requests()) {
      if (x.waiting === null) {
        if (isSilent(x, nowMs)) silent.push(x);
      } else if (nowMs - x.waiting.sinceMs > LONG_MS) waiting.push(x);
    }
    if (waiting.length === 0 && silent.length === 0) return;
    this.#saidMs = nowMs;
    const { sessionHeaders } = this.#options;
    const waits = waitsOf(waiting, this.#homes, sessionHeaders, nowMs);
    const fields: Record<string, object> = {};
    const parts: string[] = [];
    for (const phase of ['held', 'queued'] as const) {
      const rows = waits.filter((row) => row.phase === phase);
      if (rows.length === 0) continue;
      fields[phase] = rows.map(waitFields);
      parts.push(`${rows.reduce((sum, { count }) => sum + count, 0)} ${phase} for more than ${LONG_MS / 1000} s`);
    }
    if (silent.length > 0) {
      const oldest = silent.reduce((a, b) => (heardMs(a) <= heardMs(b) ? a : b));
      fields['atUnhealthyWorkers'] = {
        count: silent.length,
        oldestSecs: Math.round((nowMs - heardMs(oldest)) / 1000),
        ...namesOf(oldest.head.requestId, sessionOf(oldest, sessionHeaders)),
        worker: oldest.worker!.url,
      };
      parts.push(`${silent.length} waiting at unhealthy workers`);
    }
    this.#log.warn(fields, `requests wait: ${parts.join(', ')}`);
  }
}

/** The time of the last byte from its worker, or of the request. */
const heardMs = ({ firstByteMs, lastByteMs, startMs }: Exchange): number => (firstByteMs === 0 ? startMs : lastByteMs);

/** Whether the request waits at an unhealthy worker; a stream only if it is silent. */
function isSilent(x: Exchange, nowMs: number): boolean {
  const { worker } = x;
  if (!x.isCounted || worker === null || (worker.reasons & (REASONS.unhealthy | REASONS.hung)) === 0) return false;
  return x.firstByteMs === 0 || nowMs - x.lastByteMs > LONG_MS;
}

const waitFields = ({ count, reason, waits_for: waitsFor, oldest }: WaitRow) => ({
  count,
  oldestSecs: Math.round(oldest.waiting_secs),
  ...namesOf(oldest.id, oldest.session ?? ''),
  ...(oldest.turn === null ? {} : { turn: oldest.turn }),
  reason,
  waitsFor,
});

const namesOf = (requestId: string, session: string) => ({ requestId, ...(session === '' ? {} : { session }) });
